// A rank of a contestant. It sends "here NAME RANK VERSION"; then it answers the requests of the coordinator:
//
//   task all_reduce float32 65536     ready, or: no REASON
//   run 100                           times WRONG T T ..., in seconds
//   memory                            memory BYTES: proportional set size of the process without the buffers
//
// A turn (run) begins with one operation that is not timed; its result and that of the last operation are checked.
// Below HARNESS_TIMED_ALONE_BYTES the operations are timed together, including the rewriting of their inputs, because
// the clock is too coarse for one. From that size on each operation is timed by itself, between barriers, without the
// rewriting.
#include "bench/peers/harness.h"

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
#include "tools/horo/bench/task_data.h"

namespace horo::bench {
namespace {

using HarnessClock = std::chrono::steady_clock;

double since(HarnessClock::time_point begin) {
  return std::chrono::duration<double>(HarnessClock::now() - begin).count();
}

std::string needed_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set; horo-bench sets it");
  return value;
}

// The connection to the coordinator: lines in both directions.
class CoordinatorLink {
 public:
  explicit CoordinatorLink(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      throw std::runtime_error("the coordinator's socket " + path + ": " + std::strerror(errno));
    }
    file_ = ::fdopen(fd, "r");
  }
  ~CoordinatorLink() { std::fclose(file_); }
  CoordinatorLink(const CoordinatorLink&) = delete;
  CoordinatorLink& operator=(const CoordinatorLink&) = delete;

  // Blocks until a line has arrived. Empty: the coordinator has closed the connection.
  std::optional<std::string> receive() {
    std::string line;
    for (int next = std::fgetc(file_); next != EOF; next = std::fgetc(file_)) {
      if (next == '\n') return line;
      line.push_back(static_cast<char>(next));
    }
    return std::nullopt;
  }

  void send(std::string line) {
    line += "\n";
    for (std::string_view left = line; !left.empty();) {
      const ssize_t sent = ::send(::fileno(file_), left.data(), left.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR) throw std::runtime_error("the coordinator has closed the connection");
      left.remove_prefix(sent < 0 ? 0 : static_cast<std::size_t>(sent));
    }
  }

 private:
  FILE* file_ = nullptr;
};

// Zeroed pages that are populated.
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

class ContestantRank {
 public:
  ContestantRank(int rank, int size, const harness_driver& driver)
      : driver_(driver),
        rank_(rank),
        size_(size),
        name_(needed_variable(HARNESS_CONTESTANT)),
        folder_(needed_variable(HARNESS_FOLDER)),
        barrier_(folder_ + "/" + name_ + ".barrier", rank, size),
        coordinator_(folder_ + "/coordinator") {}
  ~ContestantRank() { finish(); }

  void serve() {
    coordinator_.send("here " + name_ + " " + std::to_string(rank_) + " " + driver_.version);
    while (const auto line = coordinator_.receive()) {
      std::istringstream words(*line);
      std::string command;
      words >> command;
      if (command == "task") {
        begin_task(words);
      } else if (command == "run") {
        std::size_t operations = 0;
        words >> operations;
        take_turn(operations);
      } else if (command == "memory") {
        coordinator_.send("memory " + std::to_string(static_cast<std::int64_t>(resident_bytes()) - own_bytes()));
      } else {
        throw std::runtime_error("unknown request of the coordinator: " + *line);
      }
    }
  }

 private:
  void begin_task(std::istringstream& words) {
    finish();
    std::size_t bytes = 0;
    words >> collective_ >> dtype_ >> bytes;
    try {
      prepare(bytes);
      coordinator_.send("ready");
    } catch (const std::exception& error) {
      finish();
      coordinator_.send(std::string("no ") + error.what());
    }
  }

  void prepare(std::size_t bytes) {
    task_ = {};
    task_.collective = collective_.c_str();
    task_.dtype = dtype_.c_str();
    task_.rank = rank_;
    task_.size = size_;
    task_.in_place = collective_ == "all_reduce" || collective_ == "broadcast" ? 1 : 0;
    data_ = std::make_unique<tools::TaskData>(tools::BenchTask{collective_, dtype_, rank_, size_}, bytes);
    task_.count = data_->count();
    task_.in_bytes = data_->in_bytes();
    task_.out_bytes = data_->out_bytes();
    if (driver_.allocate == nullptr) {
      pages_in_ = std::make_unique<Pages>(task_.in_bytes);
      if (task_.in_place == 0) pages_out_ = std::make_unique<Pages>(task_.out_bytes);
      task_.in = pages_in_->data();
      task_.out = task_.in_place != 0 ? task_.in : pages_out_->data();
    } else if (driver_.allocate(driver_.user, &task_) != 0) {
      throw std::runtime_error("no memory");
    }
    char error[HARNESS_ERROR_BYTES] = "unknown";
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

  void run_operation() {
    if (driver_.run(driver_.user) != 0) throw std::runtime_error(collective_ + " failed");
  }

  void take_turn(std::size_t operations) {
    if (!is_prepared_) throw std::runtime_error("run without a task");
    data_->begin_turn(++turn_);
    data_->rewrite(task_.in, 0);
    barrier_.wait();
    run_operation();
    std::size_t wrong = data_->count_wrong(task_.out, 0);
    std::ostringstream times;
    times.precision(9);
    if (task_.in_bytes < HARNESS_TIMED_ALONE_BYTES && task_.out_bytes < HARNESS_TIMED_ALONE_BYTES) {
      times << " " << time_together(operations);
    } else {
      for (std::size_t i = 1; i <= operations; ++i) times << " " << time_alone(i);
    }
    wrong += data_->count_wrong(task_.out, operations);
    coordinator_.send("times " + std::to_string(wrong) + times.str());
  }

  double time_together(std::size_t operations) {
    barrier_.wait();
    const auto begin = HarnessClock::now();
    for (std::size_t i = 1; i <= operations; ++i) {
      data_->rewrite(task_.in, i);
      run_operation();
    }
    return since(begin) / static_cast<double>(operations);
  }

  double time_alone(std::size_t operation) {
    data_->rewrite(task_.in, operation);
    barrier_.wait();
    const auto begin = HarnessClock::now();
    run_operation();
    const double taken = since(begin);
    barrier_.wait();
    return taken;
  }

  const harness_driver driver_;
  const int rank_, size_;
  const std::string name_, folder_;
  RankBarrier barrier_;
  CoordinatorLink coordinator_;
  std::string collective_, dtype_;
  harness_task task_{};
  bool is_prepared_ = false;
  std::unique_ptr<Pages> pages_in_, pages_out_;
  std::unique_ptr<tools::TaskData> data_;
  int turn_ = 0;
};

}  // namespace
}  // namespace horo::bench

int32_t harness_run(int32_t rank, int32_t size, const harness_driver* driver) {
  try {
    horo::bench::ContestantRank(rank, size, *driver).serve();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "rank " << rank << ": " << error.what() << std::endl;
    return 1;
  }
}
