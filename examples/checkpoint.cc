// Checkpoints in C++: all ranks save a vector together while they go on, and read it again.
//
//   cmake --build --preset release --target checkpoint_example
//   horo run -n 4 build/release/examples/checkpoint /tmp/ckpt
#include <cstdio>
#include <vector>

#include "horo/checkpoint/catalog.h"
#include "horo/checkpoint/load.h"
#include "horo/checkpoint/save.h"
#include "horo/horo.h"

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "/tmp/ckpt";
  try {
    horo::Session session(horo::config_from_environment());
    std::vector<float> weights(1'000'000, 0.5F);
    horo::checkpoint::CheckpointTensor tensor;
    tensor.name = "weights";
    tensor.dtype = "float32";
    tensor.shape = {1'000'000};
    tensor.data = reinterpret_cast<std::byte*>(weights.data());

    horo::checkpoint::Saver saver;
    horo::checkpoint::SaveOptions options;
    options.path = folder + "/step-000000001";
    options.step = 1;
    options.keep = 2;
    if (begin_save(saver, &session, options, {tensor})) {
      const auto part = saver.part(0);  // the rows that this rank writes
      saver.take(0, reinterpret_cast<const std::byte*>(weights.data() + part.start));
      saver.start();
    }
    weights.assign(weights.size(), 1.F);  // training goes on
    saver.wait_until(horo::TimePoint::max());

    horo::checkpoint::Checkpoint checkpoint(options.path);
    load(checkpoint, &session, {tensor});
    if (session.topology().rank == 0) {
      std::printf("%zu checkpoints in %s, step %llu has weights of %g\n", horo::checkpoint::list(folder).size(),
                  folder.c_str(), static_cast<unsigned long long>(checkpoint.index().step),
                  static_cast<double>(weights.front()));
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint: %s\n", error.what());
    return 1;
  }
}
