// SPDX-License-Identifier: MIT
// Writes bodies of requests for fuzz_requests into the folder given: the number of the route, then what it takes.
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

namespace {

constexpr std::pair<char, std::string_view> kBodies[] = {
    {0, R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"h\u00e9"}]}],)"
        R"("temperature":0.5,"top_p":0.9,"n":2,"seed":-1,"stop":["a","b"],"max_tokens":8,"stream":true,)"
        R"("stream_options":{"include_usage":true},"logit_bias":{"5":-100},"logprobs":true,"top_logprobs":3})"},
    {0, R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"c",)"
        R"("type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c",)"
        R"("content":"r"}],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":)"
        R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}}],"tool_choice":"required",)"
        R"("parallel_tool_calls":false})"},
    {0, R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":)"
        R"("n","strict":true,"schema":{"type":"object","properties":{"a":{"enum":[1,"b",null]}},"required":["a"],)"
        R"("additionalProperties":false}}},"truncate":"middle","clip_max_tokens":true,"max_completion_tokens":900,)"
        R"("reasoning_effort":"low","chat_template_kwargs":{"a":[1,2]}})"},
    {0, R"({"messages":[{"role":"user","content":"x"}],"grammar":"root ::= \"a\" [b-d]* | root","mirostat":2,)"
        R"("samplers":"top_k;top_p;temp","dry_multiplier":0.8,"dry_breakers":["\n"],"penalty_last_n":-1})"},
    {1, R"({"prompt":"abc","max_tokens":0,"echo":true,"logprobs":5})"},
    {1, R"({"prompt":["a",[1,2,3],""],"n":2,"best_of":2,"samplers":["top_k","temp"],"xtc_probability":0.5})"},
    {1, R"({"prompt":"def f(","suffix":"return","max_tokens":4,"response_format":{"type":"json_object"}})"},
    {2,
     R"({"input":[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"function_call","call_id":"c",)"
     R"("name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"o"},{"type":"reasoning"}],)"
     R"("instructions":"I","tools":[{"type":"function","name":"f","parameters":{}}],"tool_choice":{"type":"function",)"
     R"("name":"f"},"reasoning":{"effort":"none"},"max_output_tokens":5,"store":true})"},
    {2, R"({"input":"x","text":{"format":{"type":"json_schema","name":"n","schema":)"
        R"({"type":"array","items":{"type":"number"}}}}})"},
    {3,
     R"({"system":[{"type":"text","text":"S"}],"messages":[{"role":"user","content":"x"},)"
     R"({"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"y"},)"
     R"({"type":"tool_use","id":"u","name":"f","input":{}}]},)"
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"u","content":"r"}]}],"max_tokens":5,)"
     R"("tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"},"stop_sequences":["z"],)"
     R"("thinking":{"type":"disabled"}})"},
    {1, R"({"prompt":"x","lora":[{"name":"red","scale":0.5}],"speculate":"ngram","trace":true,"n":2})"},
    {0, R"({"messages":[{"role":"user","content":"x"}],"lora":"red","speculate":"off","receipt":false})"},
    {1, R"({"prompt":"x","receipt":true,"lora":{"name":"red","scale":0},"max_tokens":2})"},
    {4, R"({"messages":[{"role":"user","content":"x"}]})"},
    {5, R"({"messages":[{"role":"developer","content":"a"},{"role":"user","content":"<|im_end|>"}],)"
        R"("enable_thinking":false})"},
    {6, R"({"input_prefix":"a","input_suffix":"b","input_extra":[{"filename":"f","text":"t","time":1}],"prompt":"p",)"
        R"("n_predict":3,"n_indent":1,"t_max_predict_ms":9,"n_cmpl":2,"response_fields":["timings/prompt_n"],)"
        R"("lora":[{"id":0,"scale":0.5}],"samplers":["top_k"]})"},
    {7, R"({"model":"m","messages":[{"role":"user","content":"x","images":[]},{"role":"assistant","content":"",)"
        R"("tool_calls":[{"function":{"index":0,"name":"f","arguments":{"a":1}}}]},{"role":"tool","tool_name":"f",)"
        R"("content":"r"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],)"
        R"("think":false,"keep_alive":"1h30m","truncate":true,"options":{"num_predict":-1,"seed":1,"num_ctx":9}})"},
    {8, R"({"prompt":"x","system":"s","context":[5,6],"format":{"type":"object"},"keep_alive":0,"shift":true,)"
        R"("options":{"num_predict":3,"repeat_last_n":-1,"tfs_z":1},"logprobs":true,"top_logprobs":2})"},
    {8, R"({"prompt":"x","suffix":"y","raw":true,"stream":false,"template":"","steps":0})"},
    {1, R"({"prompt":"abc","max_tokens":4,"prompt_logprobs":2,"prompt_logprob_token_ids":[5,6],)"
        R"("prompt_logprob_start":1,"return_routed_experts":false,"routed_experts_format":"int32"})"},
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    std::filesystem::create_directories(argv[1]);
    int number = 0;
    for (const auto& [route, body] : kBodies) {
        std::ofstream file(std::filesystem::path(argv[1]) / std::to_string(number++), std::ios::binary);
        file.put(route);
        file << body;
    }
}
