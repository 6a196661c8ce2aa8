// The rank's side of a contest. It says "here NAME RANK VERSION"; then come the referee's lines, and answers to them:
//
//   task all_reduce float32 65536     ready, or: no WHY
//   run 100                           times WRONG T T ..., seconds; or failed WHY, and the end
//   memory                            memory BYTES: resident here, shares of what is shared, without the buffers
//
// A turn (run) begins with one operation whose result is checked, as that of its last one is. Below CONTEST_ALONE_BYTES
// the operations are timed together, and the rewriting of their inputs with them: the clock would be too coarse. From
// there on each one is timed by itself, between barriers and without the rewriting.
#include "bench/peers/contest.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "bench/peers/barrier.h"
#include "bench/peers/inputs.h"

namespace horo {
namespace {

using ContestClock = std::chrono::steady_clock;

double since(ContestClock::time_point begin) {
  return std::chrono::duration<double>(ContestClock::now() - begin).count();
}

std::string needed_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set; horo bench --against sets it");
  return value;
}

// Lines to and from the referee.
class Phone {
 public:
  explicit Phone(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      throw std::runtime_error("the referee's socket " + path + ": " + std::strerror(errno));
    }
    file_ = ::fdopen(fd, "r");
  }
  ~Phone() { std::fclose(file_); }
  Phone(const Phone&) = delete;
  Phone& operator=(const Phone&) = delete;

  // Nothing: the referee has hung up.
  std::optional<std::string> hear() {
    std::string line;
    for (int next = std::fgetc(file_); next != EOF; next = std::fgetc(file_)) {
      if (next == '\n') return line;
      line.push_back(static_cast<char>(next));
    }
    return std::nullopt;
  }

  void say(std::string line) {
    line += "\n";
    for (std::string_view left = line; !left.empty();) {
      const ssize_t sent = ::send(::fileno(file_), left.data(), left.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR) throw std::runtime_error("the referee is gone");
      left.remove_prefix(sent < 0 ? 0 : static_cast<std::size_t>(sent));
    }
  }

 private:
  FILE* file_ = nullptr;
};

// Zeros on pages of their own, all of them there.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (data_ == MAP_FAILED) throw std::runtime_error(std::to_string(bytes) + " bytes: " + std::strerror(errno));
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  void* data() const { return data_; }

 private:
  const std::size_t bytes_;
  void* data_ = nullptr;
};

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    std::size_t kib = 0;
    if (word == "Pss:" && file >> kib) return kib << 10;
  }
  return 0;
}

class Player {
 public:
  Player(int rank, int size, const contest_driver& driver)
      : driver_(driver),
        rank_(rank),
        size_(size),
        name_(needed_variable(CONTEST_NAME)),
        folder_(needed_variable(CONTEST_FOLDER)),
        barrier_(folder_ + "/" + name_ + ".barrier", rank, size),
        phone_(folder_ + "/referee") {}
  ~Player() { finish(); }

  void play() {
    phone_.say("here " + name_ + " " + std::to_string(rank_) + " " + driver_.version);
    while (const auto line = phone_.hear()) {
      std::istringstream words(*line);
      std::string command;
      words >> command;
      if (command == "task") {
        begin(words);
      } else if (command == "run") {
        std::size_t operations = 0;
        words >> operations;
        take_turn(operations);
      } else if (command == "memory") {
        phone_.say("memory " + std::to_string(static_cast<std::int64_t>(resident_bytes()) - own_bytes()));
      } else {
        throw std::runtime_error("the referee says what nobody understands: " + *line);
      }
    }
  }

 private:
  void begin(std::istringstream& words) {
    finish();
    std::size_t bytes = 0;
    words >> collective_ >> dtype_ >> bytes;
    try {
      prepare(bytes);
      phone_.say("ready");
    } catch (const std::exception& error) {
      finish();
      phone_.say(std::string("no ") + error.what());
    }
  }

  void prepare(std::size_t bytes) {
    task_ = {};
    task_.collective = collective_.c_str();
    task_.dtype = dtype_.c_str();
    task_.rank = rank_;
    task_.size = size_;
    task_.in_place = collective_ == "all_reduce" || collective_ == "broadcast" ? 1 : 0;
    data_ = std::make_unique<ContestData>(task_, bytes);
    if (driver_.allocate == nullptr) {
      pages_in_ = std::make_unique<Pages>(task_.in_bytes);
      if (task_.in_place == 0) pages_out_ = std::make_unique<Pages>(task_.out_bytes);
      task_.in = pages_in_->data();
      task_.out = task_.in_place != 0 ? task_.in : pages_out_->data();
    } else if (driver_.allocate(driver_.user, &task_) != 0) {
      throw std::runtime_error("no memory");
    }
    char error[CONTEST_ERROR_BYTES] = "unknown";
    if (driver_.prepare(driver_.user, &task_, error) != 0) throw std::runtime_error(error);
    is_prepared_ = true;
  }

  void finish() {
    if (std::exchange(is_prepared_, false) && driver_.finish != nullptr) driver_.finish(driver_.user);
    pages_in_.reset();
    pages_out_.reset();
    data_.reset();
  }

  std::int64_t own_bytes() const {
    return static_cast<std::int64_t>(task_.in_bytes + (task_.in == task_.out ? 0 : task_.out_bytes));
  }

  void operate() {
    if (driver_.run(driver_.user) != 0) throw std::runtime_error(collective_ + " failed");
  }

  void take_turn(std::size_t operations) {
    if (!is_prepared_) throw std::runtime_error("a turn without a task");
    data_->begin_turn(++turn_);
    data_->rewrite(task_.in, 0);
    barrier_.meet();
    operate();
    std::size_t wrong = data_->count_wrong(task_.out, 0);
    std::ostringstream times;
    times.precision(9);
    if (task_.in_bytes < CONTEST_ALONE_BYTES && task_.out_bytes < CONTEST_ALONE_BYTES) {
      times << " " << time_together(operations);
    } else {
      for (std::size_t i = 1; i <= operations; ++i) times << " " << time_alone(i);
    }
    wrong += data_->count_wrong(task_.out, operations);
    phone_.say("times " + std::to_string(wrong) + times.str());
  }

  double time_together(std::size_t operations) {
    barrier_.meet();
    const auto begin = ContestClock::now();
    for (std::size_t i = 1; i <= operations; ++i) {
      data_->rewrite(task_.in, i);
      operate();
    }
    return since(begin) / static_cast<double>(operations);
  }

  double time_alone(std::size_t operation) {
    data_->rewrite(task_.in, operation);
    barrier_.meet();
    const auto begin = ContestClock::now();
    operate();
    const double taken = since(begin);
    barrier_.meet();
    return taken;
  }

  const contest_driver driver_;
  const int rank_, size_;
  const std::string name_, folder_;
  ContestBarrier barrier_;
  Phone phone_;
  std::string collective_, dtype_;
  contest_task task_{};
  bool is_prepared_ = false;
  std::unique_ptr<Pages> pages_in_, pages_out_;
  std::unique_ptr<ContestData> data_;
  int turn_ = 0;
};

}  // namespace
}  // namespace horo

int32_t contest_play(int32_t rank, int32_t size, const contest_driver* driver) {
  try {
    horo::Player(rank, size, *driver).play();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "rank " << rank << " of the contest: " << error.what() << std::endl;
    return 1;
  }
}
