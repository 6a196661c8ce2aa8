// Checks of a command line for CLI11, whose own messages name neither the nearest right word nor, for numbers, a range
// that can be read.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/horo/run/run_words.h"

namespace horo::tools {

// One of these words; else the error names the nearest.
CLI::Validator one_of(std::vector<std::string> words);

// A finite number above 0.
CLI::Validator positive();

std::vector<KnownOption> known_options(const CLI::App& app);

// Replaces -h by --help: CLI11 takes "-hostfile" as "-h" and "--help=x" as "--help", so the apps have --help alone.
// Throws std::invalid_argument for a subcommand or an option that the apps do not have, with the nearest one.
void check_words(std::vector<std::string>& words, const CLI::App& app);

// The error in horo's words.
std::string text_of(const CLI::ParseError& error);

}  // namespace horo::tools
