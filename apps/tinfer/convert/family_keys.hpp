// SPDX-License-Identifier: MIT
// What the families' hyper-parameters have of their own, one function each; several share one.
#pragma once

namespace tinfer::convert {

struct Reading;

namespace keys {

void llama(Reading& r);
void smollm3(Reading& r);
void qwen(Reading& r);
void qwen2moe(Reading& r);
void qwen3moe(Reading& r);
void gemma(Reading& r);
void gemma2(Reading& r);
void gemma3(Reading& r);
void phi3(Reading& r);
void granite(Reading& r);
void olmo2(Reading& r);
void stablelm(Reading& r);
void gpt2(Reading& r);
void gptneox(Reading& r);
void falcon(Reading& r);
void bert(Reading& r);
void nomic_bert(Reading& r);
void t5(Reading& r);
void mamba(Reading& r);

}  // namespace keys
}  // namespace tinfer::convert
