#include "tools/horo/run/hosts_job.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iostream>
#include <system_error>
#include <tuple>

#include "horo/base/version.h"
#include "tools/horo/run/child.h"
#include "tools/horo/run/guard.h"
#include "tools/horo/run/host_start.h"
#include "tools/horo/run/lines.h"
#include "tools/horo/run/rank_settings.h"
#include "tools/horo/run/verdict.h"

namespace horo::tools {
namespace {

constexpr double kOthersSeconds = 12;  // from a host's failure to SIGTERM: horo run itself gives its ranks 8 s
constexpr double kKillSeconds = 6;     // from SIGTERM, or a second signal, to SIGKILL
constexpr double kLingerSeconds = 3;   // from the ranks' end to that of ssh, which waits for what a shell has left
constexpr int kSshFailed = 255;
constexpr const char* kTitle = "horo run: ";
constexpr std::array kFromUser = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

std::vector<std::string> own_variables() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

std::string bare(std::string_view line) {
  return std::string(line.substr(0, line.find_last_not_of("\r\n") + 1));
}

}  // namespace

// The stdin of `horo host`.
struct HostsJob::Channel {
  explicit Channel(struct ev_loop* loop) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
    read = Descriptor(ends[0]);
    write = Descriptor(ends[1]);
    writer = std::make_unique<StreamWriter>(loop, write.get(), [] {});
  }
  Descriptor read, write;
  std::unique_ptr<StreamWriter> writer;
};

struct HostsJob::Host {
  Host(HostsJob& job, const HostSlots& place, std::unique_ptr<Channel> channel, Child child)
      : place(place),
        to(std::move(channel)),
        pid(child.pid),
        output(job.loop_, std::move(child.output), job.destinations_of(*this, false)),
        errors(job.loop_, std::move(child.errors), job.destinations_of(*this, true)),
        ended(job.loop_, pid, [this, &job](int status) { job.on_end(*this, status); }) {}

  const HostSlots& place;
  std::unique_ptr<Channel> to;
  pid_t pid;
  bool is_ready = false, is_running = true;
  bool is_consequence = false;   // it failed after another host, or a rank there
  std::optional<int> told_code;  // of its horo run; nothing if the host or the connection was lost before
  std::optional<int> order;      // among the hosts whose ranks have ended
  RankStream output, errors;
  ChildWatch ended;
};

HostsJob::HostsJob(const HostsLaunch& launch, int lifeline_fd)
    : launch_(launch),
      loop_(::ev_default_loop(0)),
      output_(loop_, 1, [this] { on_writer(); }),
      errors_(loop_, 2, [this] { on_writer(); }),
      lifeline_(loop_, lifeline_fd, EV_READ,
                [this] {
                  kill_all();
                  code_ = 128 + SIGKILL;
                  ::ev_break(loop_, EVBREAK_ALL);
                }),
      time_(loop_, [this] { on_time(); }),
      alive_(loop_, [this] {
        send_byte(kAlive);
        alive_.set(kAliveSeconds);
      }) {
  lifeline_.start();
  for (const int signal : kFromUser) signals_.emplace_back(loop_, signal, [this](int number) { on_signal(number); });
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

HostsJob::~HostsJob() {
  kill_all();
}

int HostsJob::run() {
  time_.set(launch_.start_timeout_s);
  alive_.set(kAliveSeconds);
  try {
    for (std::size_t host = 0; host < launch_.hosts.size(); ++host) start_host(host);
  } catch (const StartFailed& failed) {
    fail_start(failed.exit_code(), failed.what());
  }
  if (code_ && errors_.is_empty()) return *code_;
  ::ev_run(loop_, 0);
  return code_.value_or(0);
}

void HostsJob::start_host(std::size_t index) {
  auto channel = std::make_unique<Channel>(loop_);
  const HostSlots& place = launch_.hosts[index];
  Child child = start({launch_.commands[index], own_variables(), {}, {}, {}, channel->read.get()});
  channel->read.close();
  const std::vector<std::byte> bytes =
      encode(HostStart{key_, launch_.folder, launch_.variables, launch_.horo_run[index]});
  channel->writer->write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (launch_.verbose) say("host " + place.name + ": process " + std::to_string(child.pid));
  hosts_.emplace_back(*this, place, std::move(channel), std::move(child));
}

RankStream::Destinations HostsJob::destinations_of(Host& host, bool is_errors) {
  RankStream::Destinations destinations;
  destinations.writer = is_errors ? &errors_ : &output_;
  destinations.most_bytes = 2 * LineSplitter::kMaxLineBytes;  // the host has split them, and put prefixes in front
  destinations.end = [this] { check_end(); };
  if (is_errors) {
    destinations.take = [this, &host](std::string_view line) { return pass_early(host, line); };
  } else {
    destinations.take = [this, &host](std::string_view line) { return take_line(host, line); };
  }
  return destinations;
}

// Before the ranks start, lines come from ssh and the shell of the host. Those that find no reader are dropped.
bool HostsJob::pass_early(const Host& host, std::string_view line) {
  if (is_going_) return false;
  if (!errors_.is_full()) errors_.write(kTitle + ("host " + host.place.name) + ": " + std::string(line));
  return true;
}

bool HostsJob::take_line(Host& host, std::string_view line) {
  const std::size_t ready = host.is_ready ? line.npos : line.find(kReadyLine);  // what a shell printed may be before it
  if (ready != line.npos) {
    on_ready(host, bare(line.substr(ready + kReadyLine.size())));
    return true;
  }
  if (!is_going_) return pass_early(host, line);
  if (line.starts_with(kConsequenceLine)) {
    host.is_consequence = true;
    return true;
  }
  if (line == "\n") return true;
  if (!line.starts_with(kEndLine)) return false;
  int code = 1;
  std::from_chars(line.data() + kEndLine.size(), line.data() + line.size(), code);
  host.told_code = code;
  note_end(host);
  return true;
}

void HostsJob::on_ready(Host& host, const std::string& version) {
  if (version != kVersion) {
    return fail_start(1, "host " + host.place.name + " has horo " + version + ", and this is " + kVersion +
                             ": all hosts need the same version");
  }
  host.is_ready = true;
  const bool are_all = hosts_.size() == launch_.hosts.size() &&
                       std::all_of(hosts_.begin(), hosts_.end(), [](const Host& one) { return one.is_ready; });
  if (!are_all) return;
  time_.stop();
  is_going_ = true;
  send_byte(kGo);
}

void HostsJob::fail_start(int code, const std::string& text) {
  if (code_) return;
  code_ = code;
  is_ending_ = true;
  time_.stop();
  say(text + "; no rank was started");
  kill_all();
}

// The ranks of a host have ended, or are lost.
void HostsJob::note_end(Host& host) {
  if (host.order) return;
  host.order = ends_++;
  const bool is_first = &host == &hosts_.front();
  const bool are_all = ends_ == static_cast<int>(launch_.hosts.size());
  if (is_ending_ && !are_all) return;
  if (are_all || (launch_.is_elastic ? is_first : host.told_code != 0)) {
    is_ending_ = true;
    time_.set(are_all ? kLingerSeconds : kOthersSeconds);
  }
}

void HostsJob::on_end(Host& host, int status) {
  host.is_running = false;
  host.output.close();
  host.errors.close();
  const std::string name = "host " + host.place.name;
  const auto& lines = host.errors.tail().lines();
  const std::string words = status_text(status) + (lines.empty() ? "" : ": " + lines.back());
  if (!is_going_) {
    const int code = code_of(status) == kSshFailed || code_of(status) == 0 ? 1 : code_of(status);
    if (!is_ending_) fail_start(code, name + (host.place.is_here ? " ended with " : ": ssh ended with ") + words);
  } else if (!host.told_code && !is_ending_) {
    say(name + " was lost: " + words);
  }
  if (is_going_) note_end(host);
  check_end();
}

void HostsJob::on_signal(int signal) {
  if (!is_going_) {
    code_ = 128 + signal;
    is_ending_ = true;
    kill_all();
    return;
  }
  send_byte(static_cast<std::uint8_t>(signal));
  if (signal == SIGUSR1 || signal == SIGUSR2 || ++interrupts_ < 2) return;
  is_ending_ = is_terminating_ = true;
  time_.set(kKillSeconds);
}

void HostsJob::on_time() {
  if (!is_going_) {
    return fail_start(1, running_text() + " did not answer within " +
                             std::to_string(static_cast<int>(launch_.start_timeout_s)) + " s (--start-timeout)");
  }
  if (ends_ == static_cast<int>(launch_.hosts.size())) {
    if (output_.is_full() || errors_.is_full()) return time_.set(kLingerSeconds);
    return kill_all();
  }
  if (is_terminating_) {
    say(running_text() + " did not end: killed");
    return kill_all();
  }
  say(running_text() + " did not end within " + std::to_string(static_cast<int>(kOthersSeconds)) +
      " s of the first that did: SIGTERM");
  is_terminating_ = true;
  for (Host& host : hosts_) host.is_consequence = host.is_consequence || !host.order;
  send_byte(SIGTERM);
  time_.set(kKillSeconds);
}

// If the reader of the job's output has closed it, the job ends with SIGPIPE's code, as a program in a pipeline.
void HostsJob::on_writer() {
  for (Host& host : hosts_) {
    host.output.update_reading();
    host.errors.update_reading();
  }
  const int error = output_.error() != 0 ? output_.error() : errors_.error();
  if (error != 0 && !code_) {
    code_ = error == EPIPE ? 128 + SIGPIPE : 1;
    if (error != EPIPE) say(std::string("cannot forward the output of the hosts: ") + std::strerror(error));
    kill_all();
  }
  check_end();
}

void HostsJob::check_end() {
  const auto is_over = [](const Host& one) {
    return !one.is_running && !one.output.is_open() && !one.errors.is_open();
  };
  if (!std::all_of(hosts_.begin(), hosts_.end(), is_over)) return;
  if (hosts_.size() < launch_.hosts.size() && !code_) return;  // they are being started
  time_.stop();
  if (!code_) code_ = code_of_hosts();
  if (output_.is_empty() && errors_.is_empty()) ::ev_break(loop_, EVBREAK_ALL);
}

// Of a host's own failure, else of the loss of a host, else of a consequence. An elastic job goes on without hosts, and
// the first host, which has the rendezvous, knows the end of the job.
int HostsJob::code_of_hosts() const {
  std::optional<std::tuple<int, int, int>> first;  // kind, order, code
  bool is_done = false;
  for (const Host& host : hosts_) {
    const int code = host.told_code.value_or(1);
    is_done = is_done || host.told_code == 0;
    if (code == 0) continue;
    const std::tuple one{host.is_consequence ? 2 : host.told_code ? 0 : 1, host.order.value_or(0), code};
    if (!first || one < *first) first = one;
  }
  if (!first || (launch_.is_elastic && is_done && std::get<0>(*first) != 0)) return 0;
  return std::get<2>(*first);
}

void HostsJob::send_byte(std::uint8_t byte) {
  const char letter = static_cast<char>(byte);
  for (const Host& host : hosts_) {
    if (host.is_running) host.to->writer->write({&letter, 1});
  }
}

void HostsJob::kill_all() {
  for (const Host& host : hosts_) {
    if (host.is_running) signal_group(host.pid, SIGKILL);
  }
}

std::string HostsJob::running_text() const {
  std::string text;
  for (const Host& host : hosts_) {
    const bool is_awaited = host.is_running && (is_going_ ? !host.order : !host.is_ready);
    if (is_awaited) text += (text.empty() ? "host " : ", ") + host.place.name;
  }
  return text;
}

void HostsJob::say(const std::string& text) {
  errors_.write(folded(kTitle + text + "\n"));
}

int launch_hosts(const HostsLaunch& launch) {
  for (const std::string& line : check_settings(launch.variables, std::nullopt)) {
    std::cerr << folded(std::string(kTitle) + "warning: " + line + "\n");
  }
  return run_guarded("horo run", [&](int lifeline_fd) { return HostsJob(launch, lifeline_fd).run(); });
}

}  // namespace horo::tools
