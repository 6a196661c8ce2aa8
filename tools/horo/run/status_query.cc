#include "tools/horo/run/status_query.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/status_folder.h"
#include "tools/horo/run/status_server.h"

namespace horo::tools {
namespace {

constexpr std::size_t kMostBytes = 16 << 20;  // of a document

struct Question {
  pid_t job = 0;
  Descriptor end;
  std::string fault;
};

// Not open and without a fault: the job has ended.
// connect() blocks while the guard has too many other clients.
Question begin_question(const StatusSocket& socket, std::string_view request, TimePoint until) {
  Question question{socket.job, Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), ""};
  const auto left = std::chrono::ceil<std::chrono::microseconds>(until - Clock::now()).count();
  const timeval limit{std::max<std::int64_t>(left, 0) / 1'000'000, std::max<std::int64_t>(left, 1) % 1'000'000};
  ::setsockopt(question.end.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const bool is_connected =
      ::connect(question.end.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const auto sent =
      is_connected ? ::send(question.end.get(), request.data(), request.size(), MSG_NOSIGNAL) : ssize_t{-1};
  if (sent == static_cast<ssize_t>(request.size())) return question;
  const int error = errno;
  question.end.close();
  if (error == ECONNREFUSED) {
    ::unlink(socket.path.c_str());
  } else if (error == EAGAIN) {
    question.fault = "it does not answer";
  } else if (error != ENOENT && error != EPIPE && error != ECONNRESET) {
    question.fault = std::strerror(error);
  }
  return question;
}

// Those of open questions that have something to read; none: the time has passed.
std::vector<std::size_t> wait_for_some(const std::vector<Question>& questions, TimePoint until) {
  std::vector<pollfd> ends;
  for (const Question& question : questions) ends.push_back({question.end.get(), POLLIN, 0});  // < 0: ignored
  int ready = -1;
  while (ready < 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    ready = ::poll(ends.data(), ends.size(), static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready < 0 && errno != EINTR) return {};
  }
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ends[i].revents != 0) some.push_back(i);
  }
  return some;
}

void read_some(Question& question, JobAnswer& answer) {
  std::array<char, 64 << 10> bytes{};
  const ssize_t got = ::recv(question.end.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) answer.json.append(bytes.data(), static_cast<std::size_t>(got));
  if (answer.json.size() > kMostBytes) answer.fault = "its answer is too long";
  if (got <= 0 || !answer.fault.empty()) question.end.close();
}

// All of them together: a guard gives up a client that does not read.
std::vector<JobAnswer> read_answers(std::vector<Question>& questions, TimePoint until) {
  std::vector<JobAnswer> answers;
  for (const Question& question : questions) answers.push_back({question.job, "", question.fault});
  const auto is_open = [](const Question& question) { return question.end.is_open(); };
  while (std::any_of(questions.begin(), questions.end(), is_open)) {
    const std::vector<std::size_t> some = wait_for_some(questions, until);
    if (some.empty()) break;
    for (const std::size_t i : some) read_some(questions[i], answers[i]);
  }
  for (std::size_t i = 0; i < questions.size(); ++i) {
    if (is_open(questions[i])) answers[i].fault = "it does not answer";
  }
  return answers;
}

}  // namespace

JobAnswer ask_job(const std::vector<std::string>& folders, pid_t job, const std::string& request, TimePoint until) {
  std::vector<Question> questions;
  for (const std::string& folder : folders) {
    if (!folder_fault(folder, ::geteuid()).empty()) continue;
    for (const StatusSocket& socket : sockets_in(folder)) {
      if (socket.job == job) questions.push_back(begin_question(socket, request, until));
    }
  }
  for (JobAnswer& answer : read_answers(questions, until)) {
    if (!answer.json.empty() || !answer.fault.empty()) return std::move(answer);
  }
  return {job, "", questions.empty() ? "it has ended" : "it has ended, or its version of horo does not know this"};
}

std::vector<JobAnswer> ask_jobs(const std::vector<std::string>& folders, TimePoint until) {
  std::vector<Question> questions;
  for (const std::string& folder : folders) {
    if (!folder_fault(folder, ::geteuid()).empty()) continue;
    for (const StatusSocket& socket : sockets_in(folder)) {
      questions.push_back(begin_question(socket, kStatusRequest, until));
    }
  }
  std::vector<JobAnswer> answers = read_answers(questions, until);
  std::erase_if(answers, [](const JobAnswer& one) { return one.json.empty() && one.fault.empty(); });  // it has ended
  std::sort(answers.begin(), answers.end(), [](const auto& a, const auto& b) { return a.job < b.job; });
  return answers;
}

}  // namespace horo::tools
