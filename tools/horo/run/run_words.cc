// A word of another launcher is taken if its meaning is the same here, dropped if it has none here, and else refused
// with horo's way.
#include "tools/horo/run/run_words.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "horo/base/nearest.h"
#include "tools/horo/run/config_file.h"

namespace horo::tools {
namespace {

enum class Habit { kRename, kDrop, kRefuse, kMaster, kEndpoint, kStandalone, kRestarts };

struct Foreign {
  std::string_view name;
  bool takes_value;
  Habit habit;
  const char* text;  // kRename: the own option; kRefuse: horo's way
};

constexpr std::array kForeign = {
    Foreign{"--nproc-per-node", true, Habit::kRename, "-n"},
    Foreign{"--log-dir", true, Habit::kRename, "--output-dir"},
    Foreign{"--timeline-filename", true, Habit::kRename, "--timeline"},
    Foreign{"--config-file", true, Habit::kRename, "--config"},
    Foreign{"--master-addr", true, Habit::kMaster, nullptr},
    Foreign{"--master-port", true, Habit::kMaster, nullptr},
    Foreign{"--rdzv-endpoint", true, Habit::kEndpoint, nullptr},
    Foreign{"--standalone", false, Habit::kStandalone, nullptr},
    Foreign{"--max-restarts", true, Habit::kRestarts, nullptr},
    Foreign{"--rdzv-backend", true, Habit::kDrop, nullptr},
    Foreign{"--rdzv-id", true, Habit::kDrop, nullptr},
    Foreign{"--rdzv-conf", true, Habit::kDrop, nullptr},
    Foreign{"--monitor-interval", true, Habit::kDrop, nullptr},
    Foreign{"--start-method", true, Habit::kDrop, nullptr},
    Foreign{"--local-addr", true, Habit::kDrop, nullptr},
    Foreign{"--role", true, Habit::kDrop, nullptr},
    Foreign{"--tee", true, Habit::kDrop, nullptr},
    Foreign{"-t", true, Habit::kDrop, nullptr},
    Foreign{"--no-python", false, Habit::kDrop, nullptr},
    Foreign{"--use-env", false, Habit::kDrop, nullptr},
    Foreign{"--gloo", false, Habit::kDrop, nullptr},
    Foreign{"--use-gloo", false, Habit::kDrop, nullptr},
    Foreign{"--disable-cache", false, Habit::kDrop, nullptr},
    Foreign{"--allow-run-as-root", false, Habit::kDrop, nullptr},
    Foreign{"--oversubscribe", false, Habit::kDrop, nullptr},
    Foreign{"--mpi", false, Habit::kRefuse, "horo connects its ranks itself; mpirun -np 4 python train.py works, too"},
    Foreign{"--redirects", true, Habit::kRefuse,
            "horo run prints the output of every rank; --output-dir FOLDER also writes it into files"},
    Foreign{"--run-path", false, Habit::kRefuse, "name the program: horo run -n 4 python train.py"},
    Foreign{"--hostfile-path", true, Habit::kRefuse, "--hostfile FILE has the list of hosts"},
};

[[noreturn]] void refuse_word(const std::string& text) {
  throw std::invalid_argument(text);
}

// "--nproc_per_node" is "--nproc-per-node", the value after "=" is not changed.
std::string with_dashes(std::string word) {
  if (!word.starts_with("--")) return word;
  std::replace(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(std::min(word.find('='), word.size())), '_',
               '-');
  return word;
}

class WordReader {
 public:
  WordReader(const std::vector<std::string>& words, const std::vector<KnownOption>& options)
      : words_(words), options_(options) {}

  std::vector<std::string> read() {
    std::size_t at = 0;
    while (at < words_.size() && words_[at].starts_with("-") && words_[at] != "--") {
      if (words_[at] == "-m") {
        finish();
        own_.push_back(python_of_ranks());
        break;
      }
      at = read_option(at);
    }
    if (at == words_.size() || words_[at] != "-m") finish();
    own_.insert(own_.end(), words_.begin() + static_cast<std::ptrdiff_t>(at), words_.end());
    return std::move(own_);
  }

 private:
  const KnownOption* find(const std::string& name) const {
    const auto has_name = [&](const KnownOption& option) {
      return std::find(option.names.begin(), option.names.end(), name) != option.names.end();
    };
    const auto found = std::find_if(options_.begin(), options_.end(), has_name);
    return found == options_.end() ? nullptr : &*found;
  }

  // The option whose letter begins the word and is followed by more: "-n4". Null: there is none.
  const KnownOption* letter_in(const std::string& word) const {
    const bool are_letters = word.size() > 2 && word[0] == '-' && word[1] != '-';
    return are_letters ? find(word.substr(0, 2)) : nullptr;
  }

  // "-vn4" is "-v -n4".
  void take_flags(std::string& word) {
    const KnownOption* option = letter_in(word);
    while (option != nullptr && !option->takes_value && std::isalpha(static_cast<unsigned char>(word[2])) != 0) {
      take(word.substr(0, 2), std::nullopt);
      word.erase(1, 1);
      option = letter_in(word);
    }
  }

  // Returns the place of the next word.
  std::size_t read_option(std::size_t at) {
    std::string word = with_dashes(words_[at]);
    if (word == "-np" || word.starts_with("-np=")) word = "--num-proc" + word.substr(3);
    if (word == "-h") word = "--help";
    if (word.starts_with("-hostfile")) word.insert(0, "-");
    take_flags(word);
    if (const KnownOption* option = letter_in(word); option != nullptr && option->takes_value) {
      take(word.substr(0, 2), word.substr(2));
      return at + 1;
    }
    const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    const std::string name = word.substr(0, equals);
    const KnownOption* option = find(name);
    const auto foreign = std::find_if(kForeign.begin(), kForeign.end(),
                                      [&](const Foreign& one) { return one.name == name && option == nullptr; });
    if (option == nullptr && foreign == kForeign.end()) {
      if (name.starts_with("--")) refuse_unknown(name);
      own_.push_back(word);  // the parser refuses it
      return at + 1;
    }
    const bool takes_value = option != nullptr ? option->takes_value : foreign->takes_value;
    std::optional<std::string> value;
    std::size_t next = at + 1;
    if (equals != std::string::npos) value = word.substr(equals + 1);
    if (value && !takes_value) refuse_word("unknown option " + word + "; " + name + " has no value");
    if (takes_value && !value && next < words_.size()) value = words_[next++];
    if (takes_value && !value) refuse_word(name + ": expected a value after it");
    if (option != nullptr) {
      take(name, value);
    } else {
      take_foreign(*foreign, value.value_or(""));
    }
    return next;
  }

  void take(const std::string& name, const std::optional<std::string>& value) {
    if (name == "--config") {
      config_ = *value;
      return;
    }
    if (name == "--nnodes") {
      nodes_ = number_of_nodes(*value);
      given_.push_back(name);
      return;
    }
    own_.push_back(name);
    if (value) own_.push_back(*value);
    given_.push_back(name);
  }

  void take_foreign(const Foreign& foreign, const std::string& value) {
    const std::string word = std::string(foreign.name) + (value.empty() ? "" : " " + value);
    switch (foreign.habit) {
      case Habit::kRename:
        return take(foreign.text, value);
      case Habit::kDrop:
        return;
      case Habit::kRefuse:
        refuse_word(std::string(foreign.name) + ": " + foreign.text);
      case Habit::kMaster:
        (foreign.name == "--master-addr" ? master_addr_ : master_port_) = value;
        return;
      case Habit::kEndpoint:
        endpoint_ = value;
        return;
      case Habit::kStandalone:
        is_standalone_ = true;
        return;
      case Habit::kRestarts:
        if (value == "0") return;
        refuse_word(word + ": horo run does not start all ranks again; with --min-np RANKS the job goes on without " +
                    "those that fail, and --restarts N replaces them");
    }
  }

  static std::string number_of_nodes(const std::string& text) {
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) return text;
    std::string most = text.substr(colon + 1);
    if (text.substr(0, colon) == most) return most;
    refuse_word("--nnodes " + text + ": a job begins on all of its hosts: expected --nnodes " + most +
                "; with --min-np RANKS it goes on when hosts are lost");
  }

  [[noreturn]] void refuse_unknown(const std::string& name) const {
    std::vector<std::string> names;
    for (const KnownOption& option : options_) {
      if (!option.is_hidden) names.insert(names.end(), option.names.begin(), option.names.end());
    }
    std::erase_if(names, [](const std::string& one) { return !one.starts_with("--"); });
    const std::string nearest = nearest_text(name, names);
    refuse_word("unknown option " + name + (nearest.empty() ? "; horo run --help names all" : nearest));
  }

  bool is_given(std::string_view name) const { return std::find(given_.begin(), given_.end(), name) != given_.end(); }

  void add(const std::string& name, const std::string& value) {
    own_.push_back(name);
    own_.push_back(value);
    given_.push_back(name);
  }

  void finish() {
    if (!config_.empty()) add_config();
    const bool are_several = !nodes_.empty() && nodes_ != "1";
    if (!nodes_.empty()) add("--nnodes", nodes_);
    if (are_several && is_standalone_) refuse_word("--standalone and --nnodes " + nodes_ + ": expected one of them");
    if (are_several && !is_given("--addr")) {
      const std::string port = master_port_.empty() ? "29500" : master_port_;  // torchrun's
      if (!master_addr_.empty()) add("--addr", master_addr_ + ":" + port);
      if (master_addr_.empty() && !endpoint_.empty()) add("--addr", endpoint_);
    }
    if (are_several) return;
    if (!master_addr_.empty()) add("-x", "MASTER_ADDR=" + master_addr_);
    if (!master_port_.empty()) add("-x", "MASTER_PORT=" + master_port_);
  }

  // Options of the command line take precedence. Those that may be repeated add up, and of two values for one variable
  // the last counts: the words of the file come before those of the command line.
  void add_config() {
    const std::vector<std::string> of_line = given_;
    const std::vector<std::string> words_of_line = std::exchange(own_, {});
    std::map<const KnownOption*, std::string> places;
    for (const ConfigLine& line : read_config_file(config_)) {
      const std::string name = with_dashes("--" + line.key);
      const KnownOption* option = find(name);
      if (option == nullptr || option->is_hidden || name == "--config" || name == "--help") refuse_key(line);
      const auto [first, is_new] = places.emplace(option, line.place);
      if (!is_new && !option->is_repeatable) {
        refuse_word(line.place + ": " + line.key + ": expected it once; it is given before: " + first->second);
      }
      const bool is_of_line = std::any_of(option->names.begin(), option->names.end(), [&](const std::string& one) {
        return std::find(of_line.begin(), of_line.end(), one) != of_line.end();
      });
      if (is_of_line && !option->is_repeatable) continue;
      if (option->takes_value) {
        take(name, line.value);
      } else if (line.value == "true") {
        take(name, std::nullopt);
      } else if (line.value != "false") {
        refuse_word(line.place + ": " + line.key + ": expected true or false, not \"" + line.value + "\"");
      }
    }
    own_.insert(own_.end(), words_of_line.begin(), words_of_line.end());
  }

  [[noreturn]] void refuse_key(const ConfigLine& line) const {
    std::vector<std::string> keys;
    for (const KnownOption& option : options_) {
      for (const std::string& name : option.names) {
        const bool is_key = name.starts_with("--") && name != "--config" && name != "--help";
        if (is_key && !option.is_hidden) keys.push_back(name.substr(2));
      }
    }
    const std::string nearest = nearest_text(line.key, keys);
    refuse_word(line.place + ": " + line.key + " is no option of horo run" +
                (nearest.empty() ? "; horo run --help names all" : nearest));
  }

  const std::vector<std::string>& words_;
  const std::vector<KnownOption>& options_;
  std::vector<std::string> own_, given_;
  std::string config_, nodes_, master_addr_, master_port_, endpoint_;
  bool is_standalone_ = false;
};

}  // namespace

std::vector<std::string> own_words(const std::vector<std::string>& words, const std::vector<KnownOption>& options) {
  return WordReader(words, options).read();
}

std::string python_of_ranks() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* name : {"python", "python3"}) {
    const std::filesystem::path python = folder / name;
    if (!error && ::access(python.c_str(), X_OK) == 0) return python.string();
  }
  return "python3";
}

}  // namespace horo::tools
