// SPDX-License-Identifier: MIT
// Which tensors did my model read for this text, and how much of each? An observer sees every access of every kernel
// call.
#include <tinfer/tinfer.hpp>

#include <iomanip>
#include <iostream>
#include <map>

struct BytesPerTensor : tinfer::Observer {
    std::map<std::string, std::uint64_t, std::less<>> bytes;
    void on_events(std::span<const tinfer::KernelEvent> events) override {
        for (const auto& event : events)
            for (const auto& access : event.accesses)
                if (access.tensor->tensor_class == tinfer::TensorClass::weight)
                    bytes[std::string(access.tensor->name)] += access.bytes();
    }
};

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: observer MODEL.gguf TEXT\n", 2;
    const auto model = tinfer::Model::load(argv[1]);
    tinfer::Context context(model);

    const auto traffic = std::make_shared<BytesPerTensor>();
    {
        const auto attached = context.attach(traffic);  // until the end of this block
        if (context.decode(model.vocab().encode(argv[2])) != tinfer::DecodeStatus::ok)
            throw tinfer::Error(tinfer::ErrorCode::no_room, "the text is longer than the context");
    }
    for (const auto& tensor : model.file().tensors()) {
        const auto read = traffic->bytes.find(tensor.name);
        std::cout << std::setw(12) << (read == traffic->bytes.end() ? 0 : read->second) << " of " << std::setw(12)
                  << tensor.bytes << "  " << tensor.name << '\n';
    }
} catch (const tinfer::Error& error) {
    std::cerr << "observer: " << error.what() << '\n';
    return 1;
}
