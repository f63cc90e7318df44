// SPDX-License-Identifier: MIT
#include "line_editor.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <utility>

#include "common.hpp"
#include "json_input.hpp"
#include "word_wrap.hpp"

#if defined(_WIN32)
#    include <io.h>
#else
#    include <fcntl.h>
#    include <langinfo.h>
#    include <poll.h>
#    include <sys/stat.h>
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
    bool owes_mark = false;   ///< kAsTyped follows the sign that was read last
    bool had_text = false;    ///< when it was interrupted
    EditLine* editor = nullptr;
    std::vector<std::string> commands, with_files;  ///< that Tab completes
};

namespace {

/// A pasted line break does not end the line: it is shown as this sign until the line is whole. A tab likewise. Where
/// the text itself has such a sign, a variation selector behind it, which is not seen, says so.
constexpr wchar_t kShownBreak = L'\u2424', kShownTab = L'\u2409', kAsTyped = L'\ufe0e';
constexpr std::string_view kBreakBytes = "\u2424", kTabBytes = "\u2409", kAsTypedBytes = "\ufe0e";
constexpr std::string_view kPasteBegin = "\033[200~", kPasteEnd = "\033[201~";

/// Set by the signal that a window has another size.
std::atomic<bool> was_resized{false};

Typing& typing_of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Typing*>(self);
}

/// Shows the line anew in a window of another size. The terminal has broken it in other places by then, so that the
/// cursor is as many rows below the prompt as the text before it takes now.
void redraw(Typing& typing) {
    const LineInfo* line = el_line(typing.editor);
    const std::string before(line->buffer, static_cast<std::size_t>(line->cursor - line->buffer));
    const int columns = terminal_columns();
    const int rows = columns > 0 ? (columns_of(typing.prompt) + columns_of(before)) / columns : 0;
    print((rows > 0 ? "\033[" + std::to_string(rows) + "A" : "") + "\r\033[J");
    el_resize(typing.editor);
    el_set(typing.editor, EL_REFRESH);
}

/// Files that begin with a text, directories with a slash behind.
std::vector<std::string> files_of(const std::string& begin) {
    const auto slash = begin.rfind('/');
    const std::string folder = slash == begin.npos ? "" : begin.substr(0, slash + 1);
    const std::string name = begin.substr(folder.size());
    std::vector<std::string> found;
    std::error_code error;
    std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error);
    for (const std::filesystem::directory_iterator end; !error && entry != end; entry.increment(error)) {
        const std::string file = entry->path().filename().string();
        std::error_code none;
        if (file.starts_with(name) && (file[0] != '.' || name.starts_with('.')))
            found.push_back(folder + file + (entry->is_directory(none) ? "/" : ""));
    }
    std::ranges::sort(found);
    return found;
}

/// Completes a command, or the file behind one; shows what there is where it is several.
unsigned char complete_line(EditLine* editor, int) {
    Typing& typing = typing_of(editor);
    const LineInfo* line = el_line(editor);
    const std::string before(line->buffer, static_cast<std::size_t>(line->cursor - line->buffer));
    const auto space = before.find(' ');
    std::string begin = before;
    std::vector<std::string> found;
    if (space == before.npos) {
        std::ranges::copy_if(typing.commands, std::back_inserter(found),
                             [&](const std::string& command) { return command.starts_with(begin); });
    } else if (std::ranges::find(typing.with_files, before.substr(0, space)) != typing.with_files.end()) {
        begin = before.substr(std::min(before.find_first_not_of(' ', space), before.size()));
        found = files_of(begin);
    }
    if (begin.empty() && space == before.npos) found.clear();
    if (found.empty()) return CC_ERROR;
    std::string common = found[0];
    for (const std::string& one : found)
        common.resize(static_cast<std::size_t>(std::ranges::mismatch(common, one).in1 - common.begin()));
    while (common.size() > begin.size() && (common.back() & 0xC0) == 0x80 && found.size() > 1) common.pop_back();
    std::string more = common.substr(begin.size());
    if (found.size() == 1 && !more.ends_with('/')) more += space == before.npos ? " " : "";
    if (!more.empty()) return el_insertstr(editor, more.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    if (found.size() == 1) return CC_NORM;
    std::string list = "\n";
    for (const std::string& one : found) list += one + "\n";
    print(list);
    return CC_REDISPLAY;
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
    while (!interrupted() && ::poll(&input, 1, 100) <= 0)
        if (was_resized.exchange(false)) redraw(typing);
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
    if (std::exchange(typing.owes_mark, false)) {
        *out = kAsTyped;
        return 1;
    }
    std::mbstate_t state{};
    while (true) {
        char byte = 0;
        const int n = read_byte(typing, byte);
        if (n <= 0) {
            const LineInfo* line = el_line(editor);
            typing.had_text = line != nullptr && line->lastchar > line->buffer;
            return n;
        }
        // A byte that continues nothing begins a character, or a mark: what was begun before it is none.
        if (std::mbsinit(&state) == 0 && (static_cast<unsigned char>(byte) & 0xC0) != 0x80) state = {};
        if (byte == '\033' && take_paste_mark(typing)) continue;
        const auto length = std::mbrtowc(out, &byte, 1, &state);
        if (length == static_cast<std::size_t>(-2)) continue;  // more bytes follow
        if (length == static_cast<std::size_t>(-1)) {
            state = {};
            continue;
        }
        typing.owes_mark = *out == kShownBreak || *out == kShownTab;
        if (typing.is_pasting && (*out == L'\n' || *out == L'\r')) *out = kShownBreak;
        if (typing.is_pasting && *out == L'\t') *out = kShownTab;
        if (typing.is_pasting && *out < L' ') continue;  // a control character is no key here
        return 1;
    }
}

/// As it is shown while it is edited: line breaks and tabs are signs.
std::string in_one_line(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\n') out += kBreakBytes;
        else if (text[i] == '\t') out += kTabBytes;
        else out += text[i];
        const auto rest = text.substr(0, i + 1);
        if (rest.ends_with(kBreakBytes) || rest.ends_with(kTabBytes)) out += kAsTypedBytes;
    }
    return out;
}

/// The text that in_one_line() shows.
std::string from_one_line(std::string_view line) {
    std::string out;
    while (!line.empty()) {
        const bool is_break = line.starts_with(kBreakBytes), is_tab = line.starts_with(kTabBytes);
        const std::size_t n = is_break ? kBreakBytes.size() : is_tab ? kTabBytes.size() : 1;
        const bool is_typed = (is_break || is_tab) && line.substr(n).starts_with(kAsTypedBytes);
        if (is_typed || n == 1) out += line.substr(0, n);
        else out += is_break ? '\n' : '\t';
        line.remove_prefix(is_typed ? n + kAsTypedBytes.size() : n);
    }
    return out;
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
        typing.editor = editor;
        struct sigaction resized {};
        resized.sa_handler = [](int) { was_resized = true; };
        ::sigaction(SIGWINCH, &resized, nullptr);
        history(list, &event, H_SETSIZE, 1000);
        el_set(editor, EL_CLIENTDATA, &typing);
        el_set(
            editor, EL_PROMPT, +[](EditLine* line) { return typing_of(line).prompt.data(); });
        el_set(editor, EL_EDITOR, "emacs");
        el_set(editor, EL_HIST, history, list);
        el_set(editor, EL_SIGNAL, 0);
        el_set(editor, EL_GETCFN, read_character);
        el_set(editor, EL_ADDFN, "tinfer-complete", "completes a command or a file", complete_line);
        el_set(editor, EL_BIND, "^I", "tinfer-complete", nullptr);
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    ~Impl() {
        if (editor != nullptr) std::signal(SIGWINCH, SIG_DFL);
        if (list != nullptr) history_end(list);
        if (editor != nullptr) el_end(editor);
        if (history_file >= 0) ::close(history_file);
    }

    Typing typing;
    EditLine* editor = nullptr;
    History* list = nullptr;
    HistEvent event{};
    int history_file = -1;
};

LineEditor::LineEditor() {
    if (is_interactive()) impl_ = std::make_unique<Impl>();
}

void LineEditor::complete(std::vector<std::string> commands, std::vector<std::string> with_files) {
    if (impl_ == nullptr) return;
    impl_->typing.commands = std::move(commands);
    impl_->typing.with_files = std::move(with_files);
}

// A line of the file is a JSON string, so that a text of several lines is one.
void LineEditor::keep_history(const std::filesystem::path& file) {
    constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
    if (impl_ == nullptr || impl_->list == nullptr || file.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(file.parent_path(), error);
    // A pipe would keep it waiting; a device is nothing to keep texts in.
    const int opened = ::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
    struct stat status {};
    const bool is_file = opened >= 0 && ::fstat(opened, &status) == 0 && S_ISREG(status.st_mode);
    if (!is_file || ::fchmod(opened, 0600) != 0) {
        const std::string why = opened >= 0 && !is_file ? "is no regular file" : std::strerror(errno);
        note("note: what you type is not kept: " + file.string() + ": " + why, Look::dim);
        if (opened >= 0) ::close(opened);
        return;
    }
    impl_->history_file = opened;
    const auto size = static_cast<std::size_t>(status.st_size);
    const bool is_long = size > kMaxBytes;
    std::string text(is_long ? kMaxBytes / 2 : size, '\0');  // of a long one the newer part
    const ssize_t n_read = ::pread(opened, text.data(), text.size(), static_cast<off_t>(size - text.size()));
    text.resize(n_read > 0 ? static_cast<std::size_t>(n_read) : 0);
    if (is_long && !text.empty()) {
        text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
        if (::ftruncate(opened, 0) != 0 || ::write(opened, text.data(), text.size()) != ssize_t(text.size()))
            note("note: the history of what was typed is lost: " + file.string(), Look::dim);
    }
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        try {
            const Json line = parse_json(text.substr(at, end - at), file.string());
            if (line.is_string()) history(impl_->list, &impl_->event, H_ENTER, in_one_line(line.string()).c_str());
        } catch (const tinfer::Error&) {  // a line that another program left: not recalled
        }
        at = end + 1;
    }
}

LineEditor::Got LineEditor::read(const std::string& prompt, std::string& line, const std::string& preset) {
    if (impl_ == nullptr || impl_->editor == nullptr) return read_plain(line);
    Typing& typing = impl_->typing;
    typing.prompt = prompt;
    typing.had_text = typing.is_pasting = typing.owes_mark = false;
    was_resized = false;
    el_resize(impl_->editor);
    if (!preset.empty())
        typing.ahead = std::string(kPasteBegin) + preset + std::string(kPasteEnd);  // as if it were pasted
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
    line = from_one_line(line);
    return interrupted() ? Got::interrupt : Got::line;
}

void LineEditor::remember(std::string_view text) {
    if (impl_ != nullptr && impl_->list != nullptr && !text.empty())
        history(impl_->list, &impl_->event, H_ENTER, in_one_line(text).c_str());
    if (impl_ == nullptr || impl_->history_file < 0 || text.empty()) return;
    const std::string line = Json(text).dump() + "\n";
    (void)!::write(impl_->history_file, line.data(), line.size());  // what is not kept is not missed
}

#else

struct LineEditor::Impl {};
LineEditor::LineEditor() = default;
void LineEditor::keep_history(const std::filesystem::path&) {}
void LineEditor::complete(std::vector<std::string>, std::vector<std::string>) {}
LineEditor::Got LineEditor::read(const std::string& prompt, std::string& line, const std::string&) {
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
