# SPDX-License-Identifier: MIT
"""The one exception of the library, and its codes."""

from __future__ import annotations

import enum


class ErrorCode(str, enum.Enum):
    """What went wrong. Members are equal to their names: ``error.code == "io_error"``."""

    # anywhere
    io_error = "io_error"
    out_of_memory = "out_of_memory"
    limit_exceeded = "limit_exceeded"
    cancelled = "cancelled"
    not_available = "not_available"
    bad_parameter = "bad_parameter"
    busy = "busy"
    # container
    not_gguf = "not_gguf"
    unsupported_version = "unsupported_version"
    wrong_endianness = "wrong_endianness"
    truncated = "truncated"
    bad_metadata = "bad_metadata"
    bad_alignment = "bad_alignment"
    bad_tensor_info = "bad_tensor_info"
    unsupported_tensor_type = "unsupported_tensor_type"
    size_overflow = "size_overflow"
    bad_offset = "bad_offset"
    tensor_overlap = "tensor_overlap"
    tensor_out_of_file = "tensor_out_of_file"
    bad_split = "bad_split"
    # model
    missing_key = "missing_key"
    wrong_type = "wrong_type"
    bad_key = "bad_key"
    bad_override = "bad_override"
    not_a_model = "not_a_model"
    unknown_arch = "unknown_arch"
    unsupported_arch = "unsupported_arch"
    missing_tensor = "missing_tensor"
    unused_tensor = "unused_tensor"
    bad_tensor_rank = "bad_tensor_rank"
    bad_tensor_shape = "bad_tensor_shape"
    bad_tensor_data = "bad_tensor_data"
    # text
    bad_vocabulary = "bad_vocabulary"
    unknown_pretokenizer = "unknown_pretokenizer"
    no_tokenizer = "no_tokenizer"
    missing_special = "missing_special"
    # context and decode
    bad_cache_type = "bad_cache_type"
    invalid_batch = "invalid_batch"
    compute_failed = "compute_failed"
    encoder_missing = "encoder_missing"
    no_output = "no_output"
    index_out_of_range = "index_out_of_range"
    non_finite = "non_finite"
    # files of our own
    damaged = "damaged"
    not_state_file = "not_state_file"
    model_mismatch = "model_mismatch"
    param_mismatch = "param_mismatch"
    type_mismatch = "type_mismatch"
    not_adapter = "not_adapter"
    arch_mismatch = "arch_mismatch"
    bad_adapter_tensor = "bad_adapter_tensor"
    missing_base_tensor = "missing_base_tensor"
    # cache
    bad_sequence = "bad_sequence"
    shared_cell = "shared_cell"
    unsupported_operation = "unsupported_operation"
    no_room = "no_room"
    # sampling, chat
    non_finite_logits = "non_finite_logits"
    no_candidates = "no_candidates"
    bad_grammar = "bad_grammar"
    bad_schema = "bad_schema"
    grammar_violation = "grammar_violation"
    grammar_too_ambiguous = "grammar_too_ambiguous"
    template_syntax = "template_syntax"
    template_runtime = "template_runtime"
    template_error = "template_error"

    def __str__(self) -> str:
        return self.value


class Error(Exception):
    """What the library cannot do with what it was given: a file, a number, a text.

    ``code`` says which kind of failure it is; the text is one line naming file, item, number and limit.
    """

    def __init__(self, code: ErrorCode | str, message: str = "") -> None:
        super().__init__(code, message)
        self.code: ErrorCode = ErrorCode(code)

    def __str__(self) -> str:
        return str(self.args[1])
