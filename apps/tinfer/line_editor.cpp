// SPDX-License-Identifier: MIT
#include "line_editor.hpp"

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>

#include "common.hpp"

#if defined(_WIN32)
#    include <io.h>
#else
#    include <langinfo.h>
#    include <poll.h>
#    include <unistd.h>
#endif
#if defined(TINFER_LIBEDIT)
#    include <histedit.h>
#endif

namespace tinfer::app {

bool LineEditor::is_interactive() noexcept {
#if defined(_WIN32)
    return _isatty(0) != 0;
#else
    return isatty(0) != 0;
#endif
}

namespace {

/// Reads a line from stdin without editing.
LineEditor::Got read_plain(std::string& line) {
    line.clear();
    while (true) {
        errno = 0;
        const int c = std::fgetc(stdin);
        if (c == EOF) {
            if (errno == EINTR) {
                std::clearerr(stdin);
                if (!interrupted()) continue;
                return LineEditor::Got::interrupt;
            }
            return line.empty() ? LineEditor::Got::end : LineEditor::Got::line;
        }
        if (c == '\n') {
            if (line.ends_with('\r')) line.pop_back();
            return LineEditor::Got::line;
        }
        if (line.size() == kMaxTextBytes) refuse_length("-", "", kMaxTextBytes);
        line += static_cast<char>(c);
    }
}

}  // namespace

#if defined(TINFER_LIBEDIT)

namespace {

/// Reads a character. libedit's own function restarts after a signal, so that interrupts would have no effect.
int read_character(EditLine*, wchar_t* out) {
    std::mbstate_t state{};
    while (true) {
        // A signal may come just before the wait, so wait in short intervals.
        pollfd input{0, POLLIN, 0};
        while (!interrupted() && ::poll(&input, 1, 100) == 0) {
        }
        if (interrupted()) {
            errno = EINTR;
            return -1;
        }
        char byte = 0;
        const auto n = ::read(0, &byte, 1);
        if (n <= 0) return static_cast<int>(n);
        const auto length = std::mbrtowc(out, &byte, 1, &state);
        if (length == static_cast<std::size_t>(-2)) continue;  // more bytes follow
        if (length == static_cast<std::size_t>(-1)) {
            state = {};
            continue;
        }
        return 1;
    }
}

}  // namespace

struct LineEditor::Impl {
    Impl() {
        // With the locale's encoding, multi-byte characters are edited as one.
        std::setlocale(LC_CTYPE, "");
        if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
        editor = el_init("tinfer", stdin, stdout, stderr);
        list = history_init();
        if (editor == nullptr || list == nullptr) return;
        history(list, &event, H_SETSIZE, 1000);
        el_set(editor, EL_CLIENTDATA, this);
        el_set(
            editor, EL_PROMPT, +[](EditLine* line) {
                void* self = nullptr;
                el_get(line, EL_CLIENTDATA, &self);
                return static_cast<Impl*>(self)->prompt.data();
            });
        el_set(editor, EL_EDITOR, "emacs");
        el_set(editor, EL_HIST, history, list);
        el_set(editor, EL_SIGNAL, 0);
        el_set(editor, EL_GETCFN, read_character);
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    ~Impl() {
        if (list != nullptr) history_end(list);
        if (editor != nullptr) el_end(editor);
    }

    std::string prompt;
    EditLine* editor = nullptr;
    History* list = nullptr;
    HistEvent event{};
};

LineEditor::LineEditor() {
    if (is_interactive()) impl_ = std::make_unique<Impl>();
}

LineEditor::Got LineEditor::read(const std::string& prompt, std::string& line) {
    if (impl_ == nullptr || impl_->editor == nullptr) return read_plain(line);
    impl_->prompt = prompt;
    int n = 0;
    errno = 0;
    const char* text = el_gets(impl_->editor, &n);
    if (text == nullptr || n <= 0) {
        const bool was_interrupted = n < 0 && errno == EINTR;
        if (was_interrupted) el_reset(impl_->editor);
        return was_interrupted || interrupted() ? Got::interrupt : Got::end;
    }
    line.assign(text, static_cast<std::size_t>(n));
    while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
    return interrupted() ? Got::interrupt : Got::line;
}

void LineEditor::remember(std::string_view text) {
    if (impl_ != nullptr && impl_->list != nullptr && !text.empty())
        history(impl_->list, &impl_->event, H_ENTER, std::string(text).c_str());
}

#else

struct LineEditor::Impl {};
LineEditor::LineEditor() = default;
LineEditor::Got LineEditor::read(const std::string& prompt, std::string& line) {
    if (is_interactive()) print(prompt);
    return read_plain(line);
}
void LineEditor::remember(std::string_view) {}

#endif

LineEditor::~LineEditor() = default;

}  // namespace tinfer::app
