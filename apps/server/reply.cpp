// SPDX-License-Identifier: MIT
#include "reply.hpp"

#include <algorithm>

#include "request_log.hpp"

namespace tinfer::server {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPoll{20};  ///< interval of checking for a client that has gone
constexpr std::chrono::seconds kQuiet{15};      ///< maximum time without output in a stream

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string finish_of(const Choice& choice) {
    if (!choice.answer.tool_calls.empty()) return "tool_calls";
    using tinfer::StopReason;
    const auto stop = *choice.last.stop;
    return stop == StopReason::eog || stop == StopReason::string ? "stop" : "length";
}

/// What a job holds until its end beside the tokens of its prompts, which request_bytes() covers.
std::size_t bytes_beside_tokens(const Job& job) {
    std::size_t per_answer = 0, sum = job.tools.capacity() + job.generation_prompt.capacity() + job.suffix.capacity();
    for (const auto& stop : job.request.generation.stop) per_answer += 2 * (sizeof stop + stop.capacity());
    per_answer += 2 * job.request.sampler.logit_bias.size() * sizeof(job.request.sampler.logit_bias[0]);
    for (const auto& warning : job.warnings) sum += sizeof warning + warning.capacity();
    for (const auto& prompt : job.prompts) sum += prompt.text.capacity();
    return sum + per_answer * job.prompts.size() * static_cast<std::size_t>(job.n);
}

/// Where a mark of a tag or a call may end. What stands in front and behind goes to the parser one after the other, so
/// that the order of texts and calls is known however the answer came.
constexpr std::string_view kEndsOfMarks = ">}])`";

void add_piece(std::vector<Piece>& pieces, PartKind kind, std::string&& text) {
    if (text.empty()) return;
    if (!pieces.empty() && pieces.back().kind == kind) pieces.back().text += text;
    else pieces.push_back({.kind = kind, .text = std::move(text)});
}

/// Reads what the model wrote, and at the end what the parser has held back.
std::vector<Piece> read_pieces(tinfer::AnswerParser& parser, const tinfer::EngineEvent& event) {
    std::string_view text = event.text;
    std::vector<Piece> pieces;
    const auto add = [&](tinfer::ChatAnswer more) {
        add_piece(pieces, PartKind::reasoning, std::move(more.reasoning));
        add_piece(pieces, PartKind::content, std::move(more.content));
        for (auto& call : more.tool_calls) pieces.push_back({.kind = PartKind::call, .call = std::move(call)});
    };
    while (!text.empty()) {
        const std::size_t n = std::min(text.find_first_of(kEndsOfMarks), text.size() - 1) + 1;
        add(parser.push(text.substr(0, n)));
        text.remove_prefix(n);
    }
    using tinfer::StopReason;
    if (event.ended()) add(parser.finish(event.stop != StopReason::eog && event.stop != StopReason::string));
    return pieces;
}

}  // namespace

Reply::Reply(Service& service, Job job, std::function<std::unique_ptr<Protocol>(const Job&)> protocol)
    : service_(service), job_(std::move(job)), protocol_(protocol(job_)), kept_(bytes_beside_tokens(job_)),
      texts_(service.texts) {
    std::vector<tinfer::EngineRequest> requests;
    for (std::size_t p = 0; p < job_.prompts.size(); ++p)
        for (int i = 0; i < job_.n; ++i) {
            auto& request = requests.emplace_back(job_.request);
            request.prompt = job_.prompts[p].tokens;
            if (auto& seed = request.sampler.seed; seed != tinfer::kRandomSeed)
                seed = (seed + static_cast<std::uint32_t>(i)) % tinfer::kRandomSeed;
            auto& choice = choices_.emplace_back();
            choice.prompt = p;
            choice.line_limit = job_.line_limit;
            if (job_.is_chat)
                choice.parser.emplace(service_.chat_template(!job_.tools.empty()),
                                      tinfer::AnswerOptions{.tools = job_.tools,
                                                            .reasoning = job_.reasoning,
                                                            .generation_prompt = job_.generation_prompt,
                                                            .n_calls_before = job_.n_calls_before});
        }
    token_at_.resize(choices_.size());
    traces_.emplace(service_, job_, requests);
    std::unique_lock<std::mutex> submitting;
    if (service_.options.expose_text) submitting = service_.texts.submitting();
    try {
        queue_.emplace(service_.engine, std::move(requests), service_.memory, kept_, &service_.adapter_uses);
    } catch (const tinfer::Error& error) {
        if (error.code() == tinfer::ErrorCode::limit_exceeded)
            throw ApiError(503, error.what(), "queue_full");  // with Retry-After
        throw translate(error, job_.prompt_field);
    }
    if (service_.options.expose_text) show_texts();
}

/// Counts the texts before they are kept.
void Reply::show_texts() {
    std::vector<std::string> prompts;
    for (const auto& choice : choices_) {
        prompts.push_back(service_.model.vocab().decode(job_.prompts[choice.prompt].tokens));
        kept_ += prompts.back().capacity();
        queue_->keep(kept_);
    }
    texts_.add(queue_->ids(), std::move(prompts));
}

void Reply::report_to(std::shared_ptr<RequestFacts> facts) {
    facts_ = std::move(facts);
    if (facts_ && service_.options.log_text)
        facts_->prompt = text_begin(service_.model.vocab().decode(job_.prompts.front().tokens));
}

void Reply::report(bool has_ended) {
    const Usage usage = usage_of(job_, choices_);
    facts_->n_prompt = usage.prompt;
    facts_->n_cached = usage.cached;
    facts_->n_generated = usage.generated;
    facts_->has_tokens = true;
    if (!has_ended) return;
    facts_->finish.clear();
    for (const Choice& choice : choices_)
        if (facts_->finish.find(choice.finish_reason) == std::string::npos)
            facts_->finish += (facts_->finish.empty() ? "" : ",") + choice.finish_reason;
    if (service_.options.log_text) facts_->answer = text_begin(choices_.front().answer.content);
}

/// The cache may be larger than the context that the model was trained with.
void Reply::warn_of_length(const tinfer::EngineEvent& event) const {
    const int trained = service_.model.info().n_ctx_train;
    if (trained > 0 && event.n_prompt + event.n_generated > static_cast<std::size_t>(trained))
        service_.log.add("a prompt and its answer were longer than the " + std::to_string(trained) +
                         " tokens that the model was trained with: quality may degrade");
}

std::string Reply::take(std::size_t index, tinfer::EngineEvent event) {
    Choice& choice = choices_[index];
    if (event.error) throw translate(*event.error);
    if (!event.tokens.empty()) {
        if (token_at_[index] == Clock::time_point{}) {
            if (index == 0) service_.metrics.first_token(seconds_since(start_));
        } else {
            service_.metrics.between_tokens(seconds_since(token_at_[index]));
        }
        token_at_[index] = Clock::now();
    }
    if (event.timed_out)
        throw ApiError(503,
                       "the time limit of " + std::to_string(service_.options.request_timeout_s) +
                           " s for an answer has passed",
                       "timeout");
    // Copies in the parser, the answer and the document.
    kept_ += (service_.options.expose_text ? 4 : 3) * event.text.size();
    kept_ += protocol_->gather(index, event, is_streaming_);
    queue_->keep(kept_);
    if (service_.options.expose_text) service_.texts.append(event.request, event.text);
    std::vector<Piece> added;
    if (choice.parser) added = read_pieces(*choice.parser, event);
    else if (choice.line_limit) add_piece(added, PartKind::content, choice.line_limit->push(event.text, event.ended()));
    else add_piece(added, PartKind::content, std::string(event.text));
    for (const Piece& piece : added) add_to(choice, piece);
    std::string out;
    const bool has_ids = job_.gives_ids && (!event.tokens.empty() || event.end_token);
    const bool has_scores = job_.request.n_top >= 0 && (!event.tokens.empty() || (job_.echo && !event.prompt.empty()));
    if (is_streaming_ && (!added.empty() || has_scores || has_ids)) out += protocol_->more(index, choice, added, event);
    const bool ended = event.ended();
    if (!ended && choice.line_limit && choice.line_limit->is_over()) service_.engine.cancel(event.request);
    choice.last = std::move(event);
    if (ended) {
        choice.finish_reason = finish_of(choice);
        warn_of_length(choice.last);
        choice.trace = traces_->close(index);
        if (choice.last.receipt) choice.receipt = receipt_text(*choice.last.receipt, service_, job_);
        if (is_streaming_) out += protocol_->end_choice(index, choice);
        if (queue_->done()) service_.metrics.whole(seconds_since(start_));
    }
    if (facts_) report(ended);
    return out;
}

std::optional<std::string> Reply::whole(const std::function<bool()>& gone) {
    while (!queue_->done()) {
        if (auto event = queue_->next(kPoll)) (void)take(event->first, std::move(event->second));
        if (!queue_->done() && gone()) return std::nullopt;
    }
    queue_->keep(2 * kept_);  // the document in addition to its parts
    return protocol_->whole(choices_);
}

bool Reply::stream(const std::function<bool(std::string_view)>& write, const std::function<bool()>& gone) {
    const auto failed = [&](const ApiError& error) { return write(protocol_->failed(service_.told(error))); };
    try {
        return stream_events(write, gone);
    } catch (const ApiError& error) {
        return failed(error);
    } catch (const tinfer::Error& error) {
        return failed(translate(error));
    } catch (const std::bad_alloc&) {
        return failed(ApiError(503, "out of memory", "out_of_memory"));
    } catch (const std::exception& error) {
        return failed(ApiError(500, error.what(), "internal"));
    }
}

bool Reply::stream_events(const std::function<bool(std::string_view)>& write, const std::function<bool()>& gone) {
    is_streaming_ = true;
    auto written_at = Clock::now();
    const auto send = [&](const std::string& bytes) {
        written_at = Clock::now();
        if (bytes.empty()) return true;
        queue_->keep(kept_ + bytes.size());
        queue_->waits(true);
        const bool ok = write(bytes);
        queue_->waits(false);
        return ok;
    };
    if (!send(protocol_->begin())) return false;
    while (!queue_->done()) {
        auto event = queue_->next(kPoll);
        if (!queue_->done() && gone()) return false;
        if (!event) {
            if (Clock::now() - written_at > kQuiet && !send(std::string(protocol_->ping()))) return false;
            continue;
        }
        std::string bytes;
        if (!has_started_ && event->first == 0) {
            has_started_ = true;
            bytes = protocol_->started(event->second);
        }
        if (job_.prompt_progress && event->second.n_generated == 0 && !event->second.ended())
            bytes += protocol_->progress(event->second);
        const std::string more = take(event->first, std::move(event->second));
        bytes += more;
        if (!bytes.empty() && !send(bytes)) return false;
    }
    return send(protocol_->end(choices_));
}

void add_to(Choice& choice, const Piece& piece) {
    auto& answer = choice.answer;
    if (piece.kind == PartKind::call) answer.tool_calls.push_back(piece.call);
    else (piece.kind == PartKind::content ? answer.content : answer.reasoning) += piece.text;
    const std::size_t size = piece.kind == PartKind::call ? 1 : piece.text.size();
    auto& parts = choice.parts;
    if (piece.kind != PartKind::call && !parts.empty() && parts.back().kind == piece.kind) parts.back().size += size;
    else parts.push_back({piece.kind, size});
}

std::vector<Piece> pieces_of(const Choice& choice) {
    std::vector<Piece> pieces;
    std::size_t content = 0, reasoning = 0, n_calls = 0;
    for (const auto& [kind, size] : choice.parts) {
        auto& piece = pieces.emplace_back(Piece{.kind = kind});
        if (kind == PartKind::call) {
            piece.call = choice.answer.tool_calls[n_calls++];
        } else {
            std::size_t& at = kind == PartKind::content ? content : reasoning;
            piece.text = (kind == PartKind::content ? choice.answer.content : choice.answer.reasoning).substr(at, size);
            at += size;
        }
    }
    return pieces;
}

Usage usage_of(const Job& job, const std::vector<Choice>& choices) {
    Usage usage;
    std::vector<bool> counted(job.prompts.size());
    for (const Choice& choice : choices) {
        usage.generated += choice.last.n_generated;
        if (counted[choice.prompt]) continue;  // count a prompt once for its n answers
        counted[choice.prompt] = true;
        usage.prompt += choice.last.n_prompt;
        usage.cached += choice.last.n_cached;
        usage.dropped += job.prompts[choice.prompt].n_dropped;
    }
    return usage;
}

Json timings_of(const std::vector<Choice>& choices) {
    const auto& event = choices.front().last;
    const auto& times = event.timings;
    const auto rate = [](std::uint64_t n, double seconds) {
        return n > 0 && seconds > 0 ? Json(double(n) / seconds) : Json();
    };
    // The first token comes from the prompt's last row: the time after it is that of the others.
    const std::uint64_t n_decoded = times.generation_n - (times.generation_n > 0 ? 1 : 0);
    return {{"queued_s", event.queued_s},
            {"first_token_s", event.first_token_s},
            {"prompt_n", times.prompt_n},
            {"cached_n", event.n_cached},
            {"prompt_s", times.prompt_s},
            {"prompt_tps", rate(times.prompt_n, times.prompt_s)},
            {"generation_n", times.generation_n},
            {"generation_s", times.generation_s},
            {"generation_tps", rate(n_decoded, times.generation_s)},
            {"drafted_n", times.drafted_n},
            {"accepted_n", times.accepted_n},
            {"gain", times.gain()},
            {"seed", event.seed}};
}

void add_evidence(Json& document, const Choice& choice) {
    if (!choice.trace.is_null()) document["trace"] = choice.trace;
    if (!choice.receipt.is_null()) document["receipt"] = choice.receipt;
}

}  // namespace tinfer::server
