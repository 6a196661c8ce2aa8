#include "tools/horo/run/host_list.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "ring/os/any_address.h"
#include "ring/os/socket.h"

namespace horo::tools {
namespace {

constexpr int kMostSlots = 1024;
constexpr std::size_t kLongestName = 255;

[[noreturn]] void refuse_part(const std::string& option, std::string_view part, const std::string& expected) {
  throw std::invalid_argument(option + ": \"" + std::string(part) + "\": expected " + expected);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool is_word(std::string_view text, std::string_view more) {
  const auto is_allowed = [&](char one) {
    return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') ||
           more.find(one) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= kLongestName && text.front() != '-' && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), is_allowed);
}

bool is_host_name(std::string_view name) {
  const std::size_t at = name.find('@');
  if (at != std::string_view::npos && !is_word(name.substr(0, at), "._-")) return false;
  return is_word(at == std::string_view::npos ? name : name.substr(at + 1), "._-");
}

// Whether an address of the name is one of this host: a socket can be bound to it.
bool has_address_here(const std::string& name) {
  try {
    for (const Address& address : resolve((name.find(':') == std::string::npos ? name : "[" + name + "]") + ":0", "")) {
      const Fd fd(::socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0) return true;
    }
  } catch (const std::invalid_argument&) {  // a name that ssh's configuration alone knows
  }
  return false;
}

bool is_this_host(const std::string& name) {
  std::array<char, 256> own{};
  ::gethostname(own.data(), own.size() - 1);
  const std::string_view full(own.data());
  if (name == "localhost" || name == full || name == full.substr(0, full.find('.'))) return true;
  return name.find('@') == std::string::npos && has_address_here(name);
}

int slots_in(std::string_view text, const std::string& option, std::string_view part) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error == std::errc() && end == text.data() + text.size() && slots >= 1 && slots <= kMostSlots) return slots;
  refuse_part(option, part, "a number of slots from 1 to 1024");
}

void check_any_address(std::string_view name, const std::string& option, std::string_view part) {
  if (!is_any_address(std::string(name.substr(name.find('@') + 1)))) return;
  refuse_part(option, part, "a host, not the address that stands for all interfaces of one: this host is localhost");
}

void add(std::string name, int slots, std::vector<HostSlots>& hosts) {
  const bool is_here = is_this_host(name);
  const auto known = std::find_if(hosts.begin(), hosts.end(),
                                  [&](const HostSlots& host) { return is_here ? host.is_here : host.name == name; });
  if (known != hosts.end()) {
    known->slots += slots;
  } else {
    hosts.insert(is_here ? hosts.begin() : hosts.end(), {std::move(name), slots, is_here});
  }
}

// "node1:4", "node1", "[::1]:4".
void add_part(std::string_view part, const std::string& option, std::vector<HostSlots>& hosts) {
  std::string_view name = part, slots;
  if (part.starts_with('[')) {
    const std::size_t end = std::min(part.find(']'), part.size());
    name = part.substr(1, end - 1);
    slots = part.substr(std::min(end + 1, part.size()));
    const bool is_address = !name.empty() && name.find_first_not_of("0123456789abcdefABCDEF:.") == name.npos;
    if (end == part.size() || !is_address || !(slots.empty() || slots.starts_with(':'))) {
      refuse_part(option, part, "[IPV6 ADDRESS]:SLOTS");
    }
  } else {
    const std::size_t colon = std::min(part.find(':'), part.size());
    name = part.substr(0, colon);
    slots = part.substr(colon);
    if (!is_host_name(name)) {
      refuse_part(option, part,
                  "HOST:SLOTS, where HOST has letters, digits and \"._-\" and does not begin with - or .");
    }
  }
  check_any_address(name, option, part);
  add(std::string(name), slots.empty() ? 1 : slots_in(slots.substr(1), option, part), hosts);
}

// "node1 slots=4" or "node1".
void add_line(std::string_view line, const std::string& option, std::vector<HostSlots>& hosts) {
  const std::size_t space = std::min(line.find_first_of(" \t"), line.size());
  std::string part(line.substr(0, space));
  std::string rest(line.substr(space));
  std::erase_if(rest, [](char one) { return one == ' ' || one == '\t'; });
  if (!rest.empty() && !rest.starts_with("slots=")) refuse_part(option, line, "HOST slots=SLOTS");
  if (!rest.empty()) part += ":" + rest.substr(sizeof("slots=") - 1);
  add_part(part, option, hosts);
}

}  // namespace

std::vector<HostSlots> parse_hosts(const std::string& text, const std::string& option) {
  std::vector<HostSlots> hosts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    add_part(trimmed(std::string_view(text).substr(begin, end - begin)), option, hosts);
  }
  return hosts;
}

std::vector<HostSlots> read_host_file(const std::string& path, const std::string& option) {
  std::ifstream file(path);
  std::error_code none;
  if (!file || std::filesystem::is_directory(path, none)) {
    throw std::invalid_argument(option + ": no such file, or it cannot be read");
  }
  std::vector<HostSlots> hosts;
  int number = 0;
  for (std::string text; std::getline(file, text);) {
    const std::string_view line = trimmed(std::string_view(text).substr(0, text.find('#')));
    ++number;
    if (!line.empty()) add_line(line, option + ", line " + std::to_string(number), hosts);
  }
  if (file.bad()) throw std::invalid_argument(option + ": it cannot be read to its end");
  if (hosts.empty()) throw std::invalid_argument(option + ": no host in it; expected lines such as: node1 slots=4");
  return hosts;
}

std::vector<HostSlots> place_ranks(std::vector<HostSlots> hosts, int ranks, const std::string& option) {
  const int all =
      std::accumulate(hosts.begin(), hosts.end(), 0, [](int sum, const auto& one) { return sum + one.slots; });
  if (ranks > all) {
    throw std::invalid_argument("-n " + std::to_string(ranks) + ": more ranks than the " + std::to_string(all) +
                                " slots of " + option);
  }
  int left = ranks == 0 ? all : ranks;
  for (HostSlots& host : hosts) {
    host.slots = std::min(host.slots, left);
    left -= host.slots;
  }
  std::erase_if(hosts, [](const HostSlots& host) { return host.slots == 0; });
  return hosts;
}

}  // namespace horo::tools
