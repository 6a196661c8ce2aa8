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
Question begin_question(const StatusSocket& socket, TimePoint until) {
  Question question{socket.job, Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), ""};
  const auto left = std::chrono::ceil<std::chrono::microseconds>(until - Clock::now()).count();
  const timeval limit{std::max<std::int64_t>(left, 0) / 1'000'000, std::max<std::int64_t>(left, 1) % 1'000'000};
  ::setsockopt(question.end.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const bool is_connected =
      ::connect(question.end.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const auto sent = is_connected
                        ? ::send(question.end.get(), kStatusRequest.data(), kStatusRequest.size(), MSG_NOSIGNAL)
                        : ssize_t{-1};
  if (sent == static_cast<ssize_t>(kStatusRequest.size())) return question;
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

bool is_readable(int fd, TimePoint until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    pollfd one{fd, POLLIN, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

JobAnswer read_answer(const Question& question, TimePoint until) {
  JobAnswer answer{question.job, "", question.fault};
  std::array<char, 64 << 10> bytes{};
  while (question.end.is_open()) {
    if (!is_readable(question.end.get(), until)) {
      answer.fault = "it does not answer";
      break;
    }
    const ssize_t got = ::recv(question.end.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got <= 0) break;
    answer.json.append(bytes.data(), static_cast<std::size_t>(got));
    if (answer.json.size() > kMostBytes) {
      answer.fault = "its answer is too long";
      break;
    }
  }
  return answer;
}

}  // namespace

std::vector<JobAnswer> ask_jobs(const std::vector<std::string>& folders, TimePoint until) {
  std::vector<Question> questions;
  for (const std::string& folder : folders) {
    if (!folder_fault(folder, ::geteuid()).empty()) continue;
    for (const StatusSocket& socket : sockets_in(folder)) questions.push_back(begin_question(socket, until));
  }
  std::vector<JobAnswer> answers;
  for (const Question& question : questions) {
    JobAnswer answer = read_answer(question, until);
    const bool has_ended = answer.json.empty() && answer.fault.empty();
    if (!has_ended) answers.push_back(std::move(answer));
  }
  std::sort(answers.begin(), answers.end(), [](const auto& a, const auto& b) { return a.job < b.job; });
  return answers;
}

}  // namespace horo::tools
