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

/// What is asked of the person, and what the keys have said beside characters.
struct Typing {
    std::string prompt;
    std::string ahead;        ///< bytes that were read behind an escape and are no mark of a paste
    bool is_pasting = false;  ///< between the marks of a bracketed paste
    bool had_text = false;    ///< when it was interrupted
};

namespace {

/// A pasted line break does not end the line: it is shown as this sign until the line is whole. A tab likewise.
constexpr wchar_t kShownBreak = L'\u2424', kShownTab = L'\u2409';
constexpr std::string_view kBreakBytes = "\u2424", kTabBytes = "\u2409";
constexpr std::string_view kPasteBegin = "\033[200~", kPasteEnd = "\033[201~";

Typing& typing_of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Typing*>(self);
}

/// One byte from the terminal. 0 at its end, -1 where a signal came; one may come just before the wait, so it waits
/// in short intervals.
int read_byte(Typing& typing, char& byte) {
    if (!typing.ahead.empty()) {
        byte = typing.ahead.front();
        typing.ahead.erase(0, 1);
        return 1;
    }
    pollfd input{0, POLLIN, 0};
    while (!interrupted() && ::poll(&input, 1, 100) == 0) {
    }
    if (interrupted()) {
        errno = EINTR;
        return -1;
    }
    return static_cast<int>(::read(0, &byte, 1));
}

/// After an escape: takes a mark of a paste away. Anything else is left for the editor.
bool take_paste_mark(Typing& typing) {
    std::string seen;
    const std::string_view mark = (typing.is_pasting ? kPasteEnd : kPasteBegin).substr(1);
    while (seen.size() < mark.size()) {
        pollfd input{0, POLLIN, 0};
        char byte = 0;
        if (typing.ahead.empty() && ::poll(&input, 1, 50) <= 0) break;  // a key sends its bytes at once
        if (read_byte(typing, byte) <= 0) break;
        seen += byte;
        if (byte != mark[seen.size() - 1]) break;
    }
    if (seen == mark) {
        typing.is_pasting = !typing.is_pasting;
        return true;
    }
    typing.ahead.insert(0, seen);
    return false;
}

/// Reads a character. libedit's own function restarts after a signal, so that interrupts would have no effect.
int read_character(EditLine* editor, wchar_t* out) {
    Typing& typing = typing_of(editor);
    std::mbstate_t state{};
    while (true) {
        char byte = 0;
        const int n = read_byte(typing, byte);
        if (n <= 0) {
            const LineInfo* line = el_line(editor);
            typing.had_text = line != nullptr && line->lastchar > line->buffer;
            return n;
        }
        if (byte == '\033' && std::mbsinit(&state) != 0 && take_paste_mark(typing)) continue;
        const auto length = std::mbrtowc(out, &byte, 1, &state);
        if (length == static_cast<std::size_t>(-2)) continue;  // more bytes follow
        if (length == static_cast<std::size_t>(-1)) {
            state = {};
            continue;
        }
        if (typing.is_pasting && (*out == L'\n' || *out == L'\r')) *out = kShownBreak;
        if (typing.is_pasting && *out == L'\t') *out = kShownTab;
        if (typing.is_pasting && *out < L' ') continue;  // a control character is no key here
        return 1;
    }
}

void replace_all(std::string& text, std::string_view what, char with) {
    for (auto at = text.find(what); at != text.npos; at = text.find(what, at + 1))
        text.replace(at, what.size(), 1, with);
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
        el_set(editor, EL_CLIENTDATA, &typing);
        el_set(
            editor, EL_PROMPT, +[](EditLine* line) { return typing_of(line).prompt.data(); });
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

    Typing typing;
    EditLine* editor = nullptr;
    History* list = nullptr;
    HistEvent event{};
};

LineEditor::LineEditor() {
    if (is_interactive()) impl_ = std::make_unique<Impl>();
}

LineEditor::Got LineEditor::read(const std::string& prompt, std::string& line) {
    if (impl_ == nullptr || impl_->editor == nullptr) return read_plain(line);
    Typing& typing = impl_->typing;
    typing.prompt = prompt;
    typing.had_text = typing.is_pasting = false;
    int n = 0;
    const bool marks_pastes = ::isatty(1) != 0;
    if (marks_pastes) print("\033[?2004h");
    errno = 0;
    const char* text = el_gets(impl_->editor, &n);
    const int error = errno;
    if (marks_pastes) print("\033[?2004l");
    had_text_ = typing.had_text;
    if (text == nullptr || n <= 0) {
        // What libedit does behind an interrupted read may set errno anew.
        const bool was_interrupted = interrupted() || (n < 0 && error == EINTR);
        if (was_interrupted) el_reset(impl_->editor);
        return was_interrupted ? Got::interrupt : Got::end;
    }
    line.assign(text, static_cast<std::size_t>(n));
    while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
    replace_all(line, kBreakBytes, '\n');
    replace_all(line, kTabBytes, '\t');
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

bool LineEditor::confirms(const std::string& question) {
    std::string said;
    return read(question + " (y/n) ", said) == Got::line && (said == "y" || said == "yes");
}

}  // namespace tinfer::app
