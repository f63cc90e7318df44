// SPDX-License-Identifier: MIT
// The test program: doctest's runner, which here also fails when its filters left no case to run. A filter that matches
// nothing would otherwise pass for ever. Cases live in <folder>/<file>_test.cpp and carry the ids of the rows they
// show.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

namespace {

unsigned n_cases = 0;

/// Counts the cases that the filters let through.
struct CaseCount : doctest::IReporter {
    explicit CaseCount(const doctest::ContextOptions&) {}
    void test_run_end(const doctest::TestRunStats& stats) override { n_cases = stats.numTestCasesPassingFilters; }
    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_case_start(const doctest::TestCaseData&) override {}
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}
};

DOCTEST_REGISTER_LISTENER("case_count", 1, CaseCount);

}  // namespace

int main(int argc, char** argv) {
    doctest::Context context(argc, argv);
    const int result = context.run();
    if (context.shouldExit()) return result;  // --list-test-cases and the like
    if (n_cases == 0) {
        std::fputs("no test case passes these filters\n", stderr);
        return 2;
    }
    return result;
}
