#include "tools/horo/cli_words.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "horo/base/nearest.h"

namespace horo::tools {
namespace {

std::string list_text(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  }
  return text;
}

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!one->get_group().empty()) names.push_back(one->get_name());
  }
  return names;
}

// By its name or another spelling; null: there is none.
const CLI::App* subcommand_of(const CLI::App& app, const std::string& word) {
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (one->check_name(word)) return one;
  }
  return nullptr;
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

bool is_program(const std::string& word) {
  return word.ends_with(".py") || word.starts_with("python");
}

void check_option(const std::string& word, const CLI::App& app) {
  const std::string name = word.substr(0, word.find('='));
  if (name == "--help" && name != word) throw std::invalid_argument("unknown option " + word + "; --help has no value");
  std::vector<std::string> names;
  for (const KnownOption& option : known_options(app)) {
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) return;
    if (!option.is_hidden) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  const std::string nearest = nearest_text(name, names);
  throw std::invalid_argument("unknown option " + name +
                              (nearest.empty() ? "; " + full_name(app) + " --help names all" : nearest));
}

}  // namespace

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string all = list_text(words);
  CLI::Validator validator(
      [words = std::move(words), all](std::string& word) {
        if (std::find(words.begin(), words.end(), word) != words.end()) return std::string();
        return "expected " + all + ", not \"" + word + "\"" + nearest_text(word, words);
      },
      "");
  return validator;
}

CLI::Validator positive() {
  return CLI::Validator(
      [](std::string& word) {
        char* end = nullptr;
        const double number = std::strtod(word.c_str(), &end);
        const bool is_number = !word.empty() && *end == '\0' && std::isfinite(number);
        return is_number && number > 0 ? std::string() : "expected a number above 0, not \"" + word + "\"";
      },
      "");
}

std::vector<KnownOption> known_options(const CLI::App& app) {
  std::vector<KnownOption> options;
  for (const CLI::Option* option : app.get_options()) {
    KnownOption known;
    for (const std::string& name : option->get_lnames()) known.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) known.names.push_back("-" + name);
    known.takes_value = option->get_expected_min() > 0;
    known.is_hidden = option->get_group().empty();
    known.is_repeatable = option->get_expected_max() > 1;
    options.push_back(std::move(known));
  }
  return options;
}

void check_words(std::vector<std::string>& words, const CLI::App& app) {
  const bool asks_help = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "-h" || word == "--help" || word == "--version";
  });
  const CLI::App* current = &app;
  for (std::string& word : words) {
    if (word == "--") return;
    if (word == "-h") word = "--help";
    if (word.starts_with("--")) {
      check_option(word, *current);
      continue;
    }
    const std::vector<std::string> names = subcommands_of(*current);
    if (word.starts_with("-") || names.empty()) continue;
    const CLI::App* next = subcommand_of(*current, word);
    if (next == nullptr) {
      std::string nearest = nearest_text(word, names);
      if (current == &app && is_program(word)) nearest = "; did you mean horo run -n 4 " + word + "?";
      throw std::invalid_argument("unknown subcommand " + full_name(*current) + " " + word +
                                  (nearest.empty() ? "; expected " + list_text(names) : nearest));
    }
    current = next;
    if (current->get_group().empty()) return;  // horo itself gives its words
  }
  if (!asks_help && !subcommands_of(*current).empty()) {
    throw std::invalid_argument(full_name(*current) +
                                ": expected a subcommand: " + list_text(subcommands_of(*current)));
  }
}

std::string text_of(const CLI::ParseError& error) {
  const std::string start = "Could not convert: ";
  std::string text = error.what();
  if (!text.starts_with(start)) return text;
  const std::size_t equals = text.find(" = ");
  return text.substr(start.size(), equals - start.size()) + " " + text.substr(std::min(text.size(), equals + 3)) +
         ": expected a number";
}

}  // namespace horo::tools
