// Any environment gives a consistent Config, or an error with the reason.
#include "horo/base/settings.h"

#include <map>
#include <stdexcept>
#include <string>

#include "horo/base/check.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

// What detect_launcher() looks at.
constexpr const char* kLaunchers[] = {"RANK",
                                      "WORLD_SIZE",
                                      "LOCAL_RANK",
                                      "LOCAL_WORLD_SIZE",
                                      "MASTER_ADDR",
                                      "MASTER_PORT",
                                      "TORCHELASTIC_RUN_ID",
                                      "TORCHELASTIC_RESTART_COUNT",
                                      "OMPI_COMM_WORLD_RANK",
                                      "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE",
                                      "OMPI_MCA_ess_base_jobid",
                                      "PMI_RANK",
                                      "PMI_SIZE",
                                      "MPI_LOCALRANKID",
                                      "MPI_LOCALNRANKS",
                                      "SLURM_PROCID",
                                      "SLURM_NTASKS",
                                      "SLURM_LOCALID",
                                      "SLURM_JOB_ID",
                                      "SLURM_STEP_ID",
                                      "SLURM_STEP_NUM_TASKS",
                                      "SLURM_STEP_TASKS_PER_NODE",
                                      "SLURM_NODEID",
                                      "SLURM_PTY_PORT",
                                      "SLURM_JOB_NAME",
                                      "PMIX_NAMESPACE"};

// Which variable is chosen by number, so that most inputs are about settings that exist.
std::map<std::string, std::string> environment_from(FuzzInput& input) {
  std::map<std::string, std::string> variables;
  while (!input.is_empty()) {
    const auto settings = all_settings();
    const std::size_t chosen = input.below(settings.size() + std::size(kLaunchers));
    const std::string name = chosen < settings.size() ? settings[chosen].name : kLaunchers[chosen - settings.size()];
    // Small numbers are what most of them want.
    const std::size_t size = input.below(32);
    std::string text = size < 8 ? std::to_string(size) : "";
    for (const std::byte byte : input.take(size < 8 ? 0 : size - 8)) {
      if (byte != std::byte{0}) text += static_cast<char>(byte);
    }
    // A key would be read from files and descriptors of this process.
    if (!name.starts_with("HORO_KEY")) variables[name] = text;
  }
  variables.emplace("HORO_HOST_ID", "here");
  return variables;
}

}  // namespace

bool fuzz_settings(std::span<const std::byte> bytes) {
  FuzzInput input(bytes);
  const auto name = input.take(input.below(32));
  if (const auto why =
          unknown_setting("HORO_" + std::string(reinterpret_cast<const char*>(name.data()), name.size()))) {
    HORO_CHECK(why->find("is not a setting of horo") != std::string::npos);
  }
  const auto variables = environment_from(input);
  try {
    const Config config = config_from([&](const char* wanted) {
      const auto found = variables.find(wanted);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
    HORO_CHECK(0 <= config.rank && config.rank < config.size);
    HORO_CHECK(0 <= config.local_rank && config.local_rank < config.local_size && config.local_size <= config.size);
    for (const Setting& setting : all_settings()) HORO_CHECK(value_in(config, setting).size() < 256);
    return true;
  } catch (const std::invalid_argument& error) {
    HORO_CHECK(!std::string(error.what()).empty());
    return false;
  }
}

}  // namespace horo
