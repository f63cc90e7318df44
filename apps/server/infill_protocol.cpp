// SPDX-License-Identifier: MIT
// Answers of /infill.
#include "infill.hpp"

namespace tinfer::server {

namespace {

class Infill : public Protocol {
public:
    Infill(const Service& service, const Job& job, const Json& body)
        : service_(service), job_(job), tokens_(static_cast<std::size_t>(job.n)) {
        const Json& wanted = body["response_fields"];
        if (wanted.is_string()) fields_.push_back(wanted.get<std::string>());
        for (const Json& one : wanted) fields_.push_back(one.get<std::string>());
    }

    std::string more(std::size_t index, const Choice&, std::span<const Piece> added,
                     const tinfer::EngineEvent& from) override {
        std::string text;
        for (const Piece& piece : added) text += piece.text;
        Json ids = Json::array();
        for (const auto& token : from.tokens) ids.push_back(static_cast<std::int32_t>(token.token));
        return event({{"content", text}, {"tokens", ids}, {"stop", false}, {"index", index}});
    }

    std::string end_choice(std::size_t index, const Choice& choice) override {
        return event(chosen(document(index, choice, true)));
    }
    std::string end(const std::vector<Choice>&) override { return {}; }
    std::string failed(const ApiError& error) override { return event(error.to_json()); }

    std::size_t gather(std::size_t index, const tinfer::EngineEvent& from, bool is_streaming) override {
        if (is_streaming) return 0;
        for (const auto& token : from.tokens) tokens_[index].push_back(token.token);
        return from.tokens.size() * sizeof(tinfer::Token);
    }

    std::string whole(const std::vector<Choice>& choices) override {
        if (job_.n == 1) return to_line(chosen(document(0, choices[0], false)));
        Json list = Json::array();
        for (std::size_t i = 0; i < choices.size(); ++i) list.push_back(chosen(document(i, choices[i], false)));
        return to_line(list);
    }

private:
    static std::string event(const Json& document) { return "data: " + to_line(document) + "\n\n"; }

    [[nodiscard]] Json document(std::size_t index, const Choice& choice, bool is_streaming) const {
        const auto& last = choice.last;
        const std::string stopping = last.stop == tinfer::StopReason::string && last.stop_string
                                         ? job_.request.generation.stop.at(*last.stop_string)
                                         : std::string();
        Json ids = Json::array();
        for (const auto token : tokens_[index]) ids.push_back(static_cast<std::int32_t>(token));
        const std::size_t n_dropped = job_.prompts.front().n_dropped;
        Json result{{"content", is_streaming ? std::string() : choice.answer.content},
                    {"tokens", ids},
                    {"index", index},
                    {"stop", true},
                    {"stop_type", last.stop == tinfer::StopReason::eog      ? "eos"
                                  : last.stop == tinfer::StopReason::string ? "word"
                                                                            : "limit"},
                    {"stopping_word", stopping},
                    {"model", service_.id},
                    {"truncated", n_dropped > 0},
                    {"truncated_tokens", n_dropped},
                    {"time_limit", choice.line_limit && choice.line_limit->is_by_time()},
                    {"tokens_cached", last.n_cached},
                    {"tokens_evaluated", last.n_prompt},
                    {"tokens_predicted", last.n_generated},
                    {"generation_settings", settings()},
                    {"timings", timings(choice)},
                    {"system_fingerprint", service_.fingerprint()}};
        add_evidence(result, choice);
        if (!job_.warnings.empty()) result["warnings"] = job_.warnings;
        return result;
    }

    [[nodiscard]] Json settings() const {
        const auto& sampler = job_.request.sampler;
        Json result{{"n_ctx", service_.engine.max_tokens()},
                    {"n_predict", job_.request.generation.n_predict},
                    {"seed", sampler.seed},
                    {"stop", job_.request.generation.stop}};
        for (const auto& field : tinfer::sampler_fields()) {
            const std::string name(names_in_requests(field).front());
            if (const auto* whole = std::get_if<int tinfer::SamplerOptions::*>(&field.member))
                result[name] = sampler.*(*whole);
            else result[name] = sampler.*std::get<float tinfer::SamplerOptions::*>(field.member);
        }
        return result;
    }

    static Json timings(const Choice& choice) {
        const auto& times = choice.last.timings;
        Json result = Json::object();
        const auto add = [&](const std::string& name, std::uint64_t n, double seconds) {
            result[name + "_n"] = n;
            result[name + "_ms"] = seconds * 1e3;
            result[name + "_per_token_ms"] = n > 0 ? Json(seconds * 1e3 / double(n)) : Json(0);
            result[name + "_per_second"] = seconds > 0 ? Json(double(n) / seconds) : Json(0);
        };
        add("prompt", times.prompt_n, times.prompt_s);
        add("predicted", times.generation_n, times.generation_s);
        return result;
    }

    /// The fields that were asked for, under the names that they were asked for by: "timings/prompt_n".
    [[nodiscard]] Json chosen(Json all) const {
        if (fields_.empty()) return all;
        Json some = Json::object();
        for (const auto& path : fields_) {
            const Json* at = path.empty() ? nullptr : &all;
            for (std::size_t begin = 0; at != nullptr && begin <= path.size();) {
                const std::size_t end = std::min(path.find('/', begin), path.size());
                at = at->find(std::string_view(path).substr(begin, end - begin));
                begin = end + 1;
            }
            if (at != nullptr) some[path] = *at;
        }
        return some;
    }

    const Service& service_;
    const Job& job_;
    std::vector<std::vector<tinfer::Token>> tokens_;  ///< of each answer that is not streamed
    std::vector<std::string> fields_;
};

}  // namespace

std::unique_ptr<Protocol> infill_protocol(const Service& service, const Job& job, const Json& body) {
    return std::make_unique<Infill>(service, job, body);
}

}  // namespace tinfer::server
