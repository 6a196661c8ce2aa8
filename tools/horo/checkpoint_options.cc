#include "tools/horo/checkpoint_options.h"

#include <iostream>

namespace horo::tools {

void add_checkpoint(CLI::App& app, CheckpointOptions& options) {
  CLI::App* checkpoint = app.add_subcommand("checkpoint", "List, show, verify and convert checkpoints");
  checkpoint->require_subcommand(1);
  CLI::App* list = checkpoint->add_subcommand("list", "The checkpoints in a folder, the newest first");
  list->add_option("FOLDER", options.folder, "the folder that a script keeps checkpoints in")->required();
  list->add_flag("--json", options.json, "print a JSON list of path, step, bytes and error");
  CLI::App* inspect = checkpoint->add_subcommand("inspect", "Show the tensors of a checkpoint");
  inspect->add_option("PATH", options.paths, "the checkpoint: ckpt/step-000001200")->required()->expected(1);
  inspect->add_flag("--json", options.json, "print its index, as docs/checkpoint_format.md describes it");
  CLI::App* verify = checkpoint->add_subcommand("verify", "Read checkpoints and compare all of their checksums");
  verify->add_option("PATH", options.paths, "the checkpoints")->required();
  verify->footer("Exit code 0: all are whole; 1: one is not, and a line says why; 2: wrong usage.");
  CLI::App* convert = checkpoint->add_subcommand("convert", "Convert a checkpoint to another format, or from one");
  convert->add_option("FROM", options.from, "a checkpoint, or a file or folder of another format")->required();
  convert->add_option("TO", options.to, "what is made: a checkpoint, or x.safetensors, or x.pt, or x.dcp")->required();
  convert->add_option("--step", options.step, "of a checkpoint that is made from another format (default: 0)");
  convert->add_flag("--trust", options.trusts, "read the pickle of torch.distributed.checkpoint, which can run code");
  convert->footer(
      "One file of safetensors is read and written by horo itself; .pt, and folders of torch.distributed.checkpoint\n"
      "(.dcp), by python3 with horo and torch.");
}

int run_checkpoint_command(const CLI::App& chosen, const CheckpointOptions& options) {
  const std::string which = chosen.get_subcommands().front()->get_name();
  if (which == "list") return list_checkpoints(options, std::cout);
  if (which == "inspect") return inspect_checkpoint(options, std::cout);
  if (which == "verify") return verify_checkpoints(options, std::cout);
  return convert_checkpoint(options, std::cout);
}

}  // namespace horo::tools
