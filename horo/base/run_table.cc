// A page and a board for each rank, after a page with the head and the pages of a question; then boards of other hosts'
// ranks. A rank may write into all of them: it is a process of
// the same user, and nothing here is trusted with more than messages and the place of the rank.
#include "horo/base/run_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "horo/base/check.h"

namespace horo {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::uint64_t kMagic = 0x6f726f6872756e33;  // this layout
constexpr std::size_t kTextBytes = 3584;
constexpr std::size_t kSiteBytes = 400;
constexpr std::size_t kRankBytes = kPageBytes + RunTable::kBoardBytes;
constexpr std::size_t kHeadBytes = kPageBytes + RunTable::kAnswerBytes;
static_assert(RunTable::kBoardBytes % kPageBytes == 0 && RunTable::kAnswerBytes % kPageBytes == 0);

struct Head {
  std::uint64_t magic;
  std::uint32_t ranks, others;
  std::uint32_t told_bytes;
  std::array<char, kTextBytes> told;
  std::atomic<std::int64_t> notice_until;  // nanoseconds of the clock
  std::atomic<std::int64_t> notice_steps;  // publishes it; 0: no notice
  std::atomic<std::uint32_t> has_failed;   // written by the guard before its end
};

std::size_t bytes_for(std::size_t ranks, std::size_t others) {
  return kHeadBytes + kRankBytes * ranks + RunTable::kBoardBytes * others;
}

// Those of `horo run` alone: the user's settings come and go with his environment.
bool is_place(std::string_view name) {
  constexpr std::array<std::string_view, 25> kNames = {"HORO_RANK",
                                                       "HORO_SIZE",
                                                       "HORO_LOCAL_RANK",
                                                       "HORO_LOCAL_SIZE",
                                                       "HORO_ADDR",
                                                       "HORO_KEY_FD",
                                                       "HORO_GUARD_FD",
                                                       "HORO_MIN_NP",
                                                       "HORO_JOINS",
                                                       "HOROVOD_RANK",
                                                       "HOROVOD_SIZE",
                                                       "HOROVOD_LOCAL_RANK",
                                                       "HOROVOD_LOCAL_SIZE",
                                                       "HOROVOD_CROSS_RANK",
                                                       "MASTER_ADDR",
                                                       "MASTER_PORT",
                                                       "RANK",
                                                       "WORLD_SIZE",
                                                       "LOCAL_RANK",
                                                       "GROUP_RANK",
                                                       "NODE_RANK",
                                                       "LOCAL_WORLD_SIZE",
                                                       "HOROVOD_CROSS_SIZE",
                                                       "HORO_START_TIMEOUT_MS",
                                                       "HORO_REPLACE_GLOO"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

}  // namespace

// The text is written before the process, and read after it: the process publishes it, in another process.
struct RunTable::Slot {
  std::atomic<std::int32_t> process, holder, starts;
  std::atomic<std::int32_t> status;
  std::atomic<std::uint32_t> has_ended;                     // publishes status
  std::atomic<std::uint64_t> checkpoints, checkpoint_step;  // the number publishes the step of the last one
  std::uint32_t text_bytes;
  std::array<char, kTextBytes> text;      // "NAME=value", each with a zero
  std::atomic<std::int64_t> waits_since;  // ns of the clock; 0: not in init(); publishes the site
  std::uint32_t site_bytes;
  std::array<char, kSiteBytes> site;
};

// The number of an answer publishes it. The bell is one more than the descriptor.
struct RunTable::Questions {
  std::atomic<std::uint32_t> asked, answered;
  std::uint32_t bell, bytes;
  std::array<std::byte, kAnswerBytes - 16> answer;
};

RunTable::RunTable(int fd, void* data, int ranks, int others) : fd_(fd), data_(data), ranks_(ranks), others_(others) {}

RunTable::RunTable(RunTable&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      ranks_(other.ranks_),
      others_(other.others_) {}

RunTable& RunTable::operator=(RunTable&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(ranks_, other.ranks_);
  std::swap(others_, other.others_);
  return *this;
}

RunTable::~RunTable() {
  if (data_ != nullptr) ::munmap(data_, bytes());
  if (fd_ >= 0) ::close(fd_);
}

std::size_t RunTable::bytes() const {
  return bytes_for(static_cast<std::size_t>(ranks_), static_cast<std::size_t>(others_));
}

RunTable RunTable::make(int ranks, int others) {
  static_assert(sizeof(Slot) <= kPageBytes && sizeof(Questions) <= kAnswerBytes);
  const auto fail = [](const char* call) { throw std::system_error(errno, std::generic_category(), call); };
  const int fd = ::memfd_create("horo-run", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) fail("memfd_create");
  RunTable table(fd, nullptr, ranks, others);
  if (::ftruncate(fd, static_cast<off_t>(table.bytes())) != 0) fail("ftruncate");
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) fail("F_ADD_SEALS");
  void* data = ::mmap(nullptr, table.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) fail("mmap");
  table.data_ = data;
  Head& head = *static_cast<Head*>(data);
  head.magic = kMagic;
  head.ranks = static_cast<std::uint32_t>(ranks);
  head.others = static_cast<std::uint32_t>(others);
  return table;
}

std::optional<RunTable> RunTable::map(int fd) {
  RunTable table(fd, nullptr, 0, 0);  // closes it
  struct stat status {};
  if (::fstat(fd, &status) != 0 || status.st_size < static_cast<off_t>(bytes_for(1, 0))) return std::nullopt;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return std::nullopt;
  Head head{};
  if (::pread(fd, &head, sizeof head, 0) != static_cast<ssize_t>(sizeof head)) return std::nullopt;
  const std::size_t size = bytes_for(head.ranks, head.others);
  if (head.magic != kMagic || head.ranks == 0 || static_cast<off_t>(size) != status.st_size) return std::nullopt;
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return std::nullopt;
  table.data_ = data;
  table.ranks_ = static_cast<int>(head.ranks);
  table.others_ = static_cast<int>(head.others);
  return table;
}

RunTable::Slot& RunTable::slot(int rank) const {
  HORO_CHECK(rank >= 0 && rank < ranks_);
  const std::size_t at = kHeadBytes + kRankBytes * static_cast<std::size_t>(rank);
  return *reinterpret_cast<Slot*>(static_cast<char*>(data_) + at);
}

std::span<std::byte> RunTable::board(int rank) const {
  return {reinterpret_cast<std::byte*>(&slot(rank)) + kPageBytes, kBoardBytes};
}

std::span<std::byte> RunTable::other_board(int id) const {
  HORO_CHECK(id >= 0 && id < others_);
  const std::size_t at = bytes_for(static_cast<std::size_t>(ranks_), static_cast<std::size_t>(id));
  return {static_cast<std::byte*>(data_) + at, kBoardBytes};
}

// The process first: without it, no other process is in the place of this rank.
void RunTable::clear(int rank) {
  Slot& one = slot(rank);
  one.process.store(0);
  one.has_ended.store(0);
  one.holder.store(0);
  one.starts.store(0);
  one.waits_since.store(0);
  one.text_bytes = 0;
  const std::span<std::byte> figures = board(rank);
  std::memset(figures.data(), 0, figures.size());
}

void RunTable::describe(int rank, const std::vector<std::string>& environment) {
  Slot& one = slot(rank);
  for (const std::string& text : environment) {
    const bool fits = one.text_bytes + text.size() + 1 <= one.text.size();
    if (!fits || !is_place(std::string_view(text).substr(0, text.find('=')))) continue;
    std::memcpy(one.text.data() + one.text_bytes, text.c_str(), text.size() + 1);
    one.text_bytes += static_cast<std::uint32_t>(text.size() + 1);
  }
}

std::atomic<std::int32_t>& RunTable::process_word(int rank) {
  return slot(rank).process;
}

void RunTable::set_end(int rank, int status) {
  slot(rank).status.store(status, std::memory_order_relaxed);
  slot(rank).has_ended.store(1, std::memory_order_release);
}

void RunTable::add_checkpoint(int rank, std::uint64_t step) {
  slot(rank).checkpoint_step.store(step, std::memory_order_relaxed);
  slot(rank).checkpoints.fetch_add(1, std::memory_order_release);
}

RunTable::Checkpoints RunTable::checkpoints() const {
  Checkpoints all;
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::uint64_t count = slot(rank).checkpoints.load(std::memory_order_acquire);
    if (count == 0) continue;
    all.count += count;
    all.last_step = std::max(all.last_step, slot(rank).checkpoint_step.load(std::memory_order_relaxed));
  }
  return all;
}

void RunTable::set_holder(int rank, pid_t pid) {
  slot(rank).holder.store(pid);
}

void RunTable::count_start(int rank) {
  ++slot(rank).starts;
}

void RunTable::set_start(int rank, TimePoint since, const std::string& site) {
  Slot& one = slot(rank);
  one.waits_since.store(0);
  one.site_bytes = static_cast<std::uint32_t>(std::min(site.size(), one.site.size()));
  std::memcpy(one.site.data(), site.data(), one.site_bytes);
  one.waits_since.store(since.time_since_epoch().count(), std::memory_order_release);
}

std::optional<RunTable::Start> RunTable::start(int rank) const {
  const Slot& one = slot(rank);
  const std::int64_t since = one.waits_since.load(std::memory_order_acquire);
  if (since == 0) return std::nullopt;
  return Start{TimePoint{} + std::chrono::nanoseconds(since),
               {one.site.data(), std::min<std::size_t>(one.site_bytes, one.site.size())}};
}

RunTable::Questions& RunTable::questions() const {
  return *reinterpret_cast<Questions*>(static_cast<char*>(data_) + kPageBytes);
}

void RunTable::set_bell(int fd) {
  questions().bell = static_cast<std::uint32_t>(fd + 1);
}

int RunTable::bell() const {
  return static_cast<int>(questions().bell) - 1;
}

std::uint32_t RunTable::ask() {
  return ++questions().asked;
}

std::uint32_t RunTable::asked() const {
  return questions().asked.load(std::memory_order_relaxed);
}

void RunTable::answer(std::uint32_t question, std::span<const std::byte> bytes) {
  Questions& one = questions();
  HORO_CHECK(bytes.size() <= one.answer.size());
  one.bytes = static_cast<std::uint32_t>(bytes.size());
  std::memcpy(one.answer.data(), bytes.data(), bytes.size());
  one.answered.store(question, std::memory_order_release);
}

std::optional<std::vector<std::byte>> RunTable::answer_to(std::uint32_t question) const {
  const Questions& one = questions();
  if (one.answered.load(std::memory_order_acquire) != question) return std::nullopt;
  const auto bytes = std::span(one.answer).first(std::min<std::size_t>(one.bytes, one.answer.size()));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

RunTable::Variables RunTable::variables(int rank) const {
  const Slot& one = slot(rank);
  Variables found;
  const std::string_view text(one.text.data(), std::min<std::size_t>(one.text_bytes, one.text.size()));
  for (std::size_t begin = 0; begin < text.size();) {
    const std::string_view line = text.substr(begin, text.find('\0', begin) - begin);
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos) found.emplace(line.substr(0, equals), line.substr(equals + 1));
    begin += line.size() + 1;
  }
  return found;
}

void RunTable::set_failed() {
  static_cast<Head*>(data_)->has_failed.store(1);
}

bool RunTable::has_failed() const {
  return static_cast<const Head*>(data_)->has_failed.load() != 0;
}

void RunTable::set_told(const std::string& lines) {
  Head& head = *static_cast<Head*>(data_);
  head.told_bytes = static_cast<std::uint32_t>(std::min(lines.size(), head.told.size()));
  std::memcpy(head.told.data(), lines.data(), head.told_bytes);
}

bool RunTable::has_told(const std::string& line) const {
  const Head& head = *static_cast<const Head*>(data_);
  const std::string_view told(head.told.data(), std::min<std::size_t>(head.told_bytes, head.told.size()));
  return told.find(line + "\n") != std::string_view::npos;
}

void RunTable::set_notice(std::int64_t steps, TimePoint until) {
  Head& head = *static_cast<Head*>(data_);
  const std::int64_t ns = std::chrono::nanoseconds(until.time_since_epoch()).count();
  head.notice_until.store(ns, std::memory_order_relaxed);
  head.notice_steps.store(steps, std::memory_order_release);
}

std::optional<RunTable::Notice> RunTable::notice() const {
  const Head& head = *static_cast<const Head*>(data_);
  const std::int64_t steps = head.notice_steps.load(std::memory_order_acquire);
  if (steps <= 0) return std::nullopt;
  return Notice{steps, TimePoint(std::chrono::nanoseconds(head.notice_until.load(std::memory_order_relaxed)))};
}

pid_t RunTable::process(int rank) const {
  return slot(rank).process.load(std::memory_order_acquire);
}

pid_t RunTable::holder(int rank) const {
  return slot(rank).holder.load();
}

int RunTable::starts(int rank) const {
  return slot(rank).starts.load();
}

std::optional<int> RunTable::end(int rank) const {
  if (slot(rank).has_ended.load(std::memory_order_acquire) == 0) return std::nullopt;
  return slot(rank).status.load(std::memory_order_relaxed);
}

}  // namespace horo
