# SPDX-License-Identifier: MIT
"""tinfer where people are already: objects of the shapes that other packages have. Each module needs its package alone:
``llama_cpp`` and ``transformers`` none, ``langchain`` langchain-core, ``lm_eval`` lm-eval, ``llm_plugin`` llm."""
