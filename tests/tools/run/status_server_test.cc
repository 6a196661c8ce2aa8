#include "tools/horo/run/status_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>

#include "tools/horo/run/status_query.h"

namespace horo::tools {
namespace {

constexpr double kDeadlineSeconds = 30;

Descriptor client_of(const std::string& path) {
  Descriptor end(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (::connect(end.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) end.close();
  return end;
}

bool send_text(const Descriptor& end, std::string_view text) {
  return ::send(end.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

class StatusServerTest : public testing::Test {
 protected:
  StatusServerTest() {
    std::string made = std::filesystem::temp_directory_path() / "horo-status-XXXXXX";
    EXPECT_NE(::mkdtemp(made.data()), nullptr);
    folder_ = made;
    path_ = folder_ + "/77.sock";
  }
  ~StatusServerTest() override {
    server_.reset();
    ::ev_loop_destroy(loop_);
    std::filesystem::remove_all(folder_);
  }

  void serve(double client_s = kDeadlineSeconds, uid_t owner = ::geteuid()) {
    server_ = std::make_unique<StatusServer>(loop_, StatusAccess{path_, owner, client_s},
                                             StatusOrders{[this](StatusQuestion) { ++asked_; }, resize_});
  }

  // Runs the loop until it holds.
  template <class Condition>
  void run_until(const Condition& condition) {
    bool is_late = false;
    Timer late(loop_, [&] { is_late = true; });
    late.set(kDeadlineSeconds);
    while (!is_late && !condition()) ::ev_run(loop_, EVRUN_ONCE);
    ASSERT_FALSE(is_late) << "it does not hold within " << kDeadlineSeconds << " s";
  }

  // Appends what has arrived. True: the stream has ended.
  bool read(const Descriptor& end, std::string& text) {
    char bytes[4096];
    ssize_t got = 0;
    while ((got = ::recv(end.get(), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
      text.append(bytes, static_cast<std::size_t>(got));
    }
    return got == 0 || errno == ECONNRESET;
  }
  bool has_ended(const Descriptor& end) {
    std::string text;
    Timer again(loop_, [] {});
    again.set(0.001);  // the loop shall not sleep
    return read(end, text);
  }

  struct ev_loop* const loop_ = ::ev_loop_new(0);
  std::string folder_, path_;
  std::unique_ptr<StatusServer> server_;
  int asked_ = 0;
  std::function<ResizeAnswer(int)> resize_;
};

TEST_F(StatusServerTest, AClientThatAsksGetsTheDocumentAndTheEnd) {
  serve();
  const Descriptor one = client_of(path_), two = client_of(path_);
  ASSERT_TRUE(send_text(one, "sta") && send_text(two, kStatusRequest));
  run_until([&] { return asked_ == 1; });
  ASSERT_TRUE(send_text(one, "tus 1\n"));
  run_until([&] { return asked_ == 2; });
  EXPECT_TRUE(server_->is_asked(StatusQuestion::kStatus));
  server_->answer(StatusQuestion::kStatus, "{}");
  EXPECT_FALSE(server_->is_asked(StatusQuestion::kStatus));
  for (const Descriptor* end : {&one, &two}) {
    std::string text;
    EXPECT_TRUE(read(*end, text));
    EXPECT_EQ(text, "{}");
  }
}

TEST_F(StatusServerTest, EachQuestionHasItsOwnAnswer) {
  serve(0.05);
  const Descriptor status = client_of(path_), why = client_of(path_);
  ASSERT_TRUE(send_text(why, "wh") && send_text(why, "y 1\n"));
  run_until([&] { return server_->is_asked(StatusQuestion::kWhy); });
  EXPECT_FALSE(server_->is_asked(StatusQuestion::kStatus));
  run_until([&] { return has_ended(status); });  // the other one has longer
  server_->answer(StatusQuestion::kStatus, "status");
  EXPECT_TRUE(server_->is_asked(StatusQuestion::kWhy));
  server_->answer(StatusQuestion::kWhy, "why");
  std::string text;
  run_until([&] { return read(why, text); });
  EXPECT_EQ(text, "why");
}

TEST_F(StatusServerTest, ALongDocumentIsSentInPieces) {
  serve();
  const Descriptor client = client_of(path_);
  ASSERT_TRUE(send_text(client, kStatusRequest));
  run_until([&] { return server_->is_asked(StatusQuestion::kStatus); });
  const std::string document(5'000'000, 'x');
  server_->answer(StatusQuestion::kStatus, document);
  std::string text;
  run_until([&] { return read(client, text); });
  EXPECT_TRUE(text == document) << text.size() << " bytes";
}

TEST_F(StatusServerTest, AClientThatReadsNothingIsEndedInTime) {
  serve(0.05);
  const Descriptor silent = client_of(path_), slow = client_of(path_);
  ASSERT_TRUE(send_text(slow, kStatusRequest));
  run_until([&] { return server_->is_asked(StatusQuestion::kStatus); });
  server_->answer(StatusQuestion::kStatus, std::string(5'000'000, 'x'));
  run_until([&] { return has_ended(silent); });
  std::string text;
  run_until([&] { return read(slow, text); });
  EXPECT_LT(text.size(), 5'000'000U);
}

TEST_F(StatusServerTest, OtherRequestsAreRefused) {
  serve();
  for (const std::string& request :
       {std::string("status 2\n"), std::string("GET / HTTP/1.1\r\n"), std::string("\0", 1), std::string(100'000, 's'),
        std::string(kStatusRequest) + "more", std::string("resize 1 4\n"), std::string("resize 1 -4\n"),
        std::string("resize 1 \n")}) {
    const Descriptor client = client_of(path_);
    send_text(client, request);
    run_until([&] { return has_ended(client); });
  }
  EXPECT_EQ(asked_, 0);
}

TEST_F(StatusServerTest, AResizeIsAnsweredAtOnce) {
  resize_ = [](int ranks) { return ResizeAnswer{ranks < 5, "it has " + std::to_string(ranks)}; };
  serve();
  for (const auto& [request, reply] :
       {std::pair("resize 1 4\n", "+it has 4"), {"resize 1 123456\n", "-it has 123456"}}) {
    const Descriptor client = client_of(path_);
    ASSERT_TRUE(send_text(client, std::string_view(request).substr(0, 10)));
    for (int i = 0; i < 20; ++i) ::ev_run(loop_, EVRUN_NOWAIT);
    ASSERT_TRUE(send_text(client, std::string_view(request).substr(10)));
    std::string text;
    run_until([&] { return read(client, text); });
    EXPECT_EQ(text, reply);
  }
  EXPECT_EQ(asked_, 0);
}

TEST_F(StatusServerTest, AResizeOfSevenDigitsIsRefused) {
  resize_ = [](int) { return ResizeAnswer{true, ""}; };
  serve();
  const Descriptor client = client_of(path_);
  ASSERT_TRUE(send_text(client, "resize 1 1234567"));
  run_until([&] { return has_ended(client); });
}

TEST_F(StatusServerTest, ItHasOnlySoManyClients) {
  serve();
  std::vector<Descriptor> silent;
  for (std::size_t i = 0; i < StatusServer::kMostClients; ++i) silent.push_back(client_of(path_));
  const Descriptor next = client_of(path_);
  ASSERT_TRUE(send_text(next, kStatusRequest));
  for (int i = 0; i < 20; ++i) ::ev_run(loop_, EVRUN_NOWAIT);
  EXPECT_EQ(asked_, 0);
  silent.pop_back();
  run_until([&] { return asked_ == 1; });
}

// Root is never refused, so as root the client takes another user.
TEST_F(StatusServerTest, OtherUsersAreRefused) {
  const bool is_root = ::geteuid() == 0;
  serve(kDeadlineSeconds, is_root ? 0 : ::geteuid() + 1);
  ASSERT_TRUE(::chmod(folder_.c_str(), 0755) == 0 && ::chmod(path_.c_str(), 0777) == 0);
  Descriptor client;
  std::jthread([&] {
    constexpr uid_t kKept = UINT32_MAX;
    if (is_root) ::syscall(SYS_setresuid, kKept, 65'534, kKept);  // of this thread alone
    client = client_of(path_);
  }).join();
  ASSERT_TRUE(client.is_open());
  run_until([&] { return has_ended(client); });
  EXPECT_EQ(asked_, 0);
}

TEST_F(StatusServerTest, TheSocketIsRemovedAtTheEndAndReplacedAfterAKill) {
  serve();
  const std::string stale = folder_ + "/kept";
  std::filesystem::rename(path_, stale);
  server_.reset();
  std::filesystem::rename(stale, path_);  // as after a kill
  EXPECT_FALSE(client_of(path_).is_open());
  serve();
  EXPECT_TRUE(client_of(path_).is_open());
  server_.reset();
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(StatusServerTest, TheSocketOfAJobThatHasEndedIsRemovedByAQuestion) {
  serve();
  std::filesystem::rename(path_, folder_ + "/78.sock");
  server_.reset();
  EXPECT_TRUE(ask_jobs({folder_}, Clock::now()).empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(StatusServerTest, AJobThatDoesNotAnswerIsTold) {
  serve();
  const std::vector<JobAnswer> answers = ask_jobs({folder_}, Clock::now());
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].job, 77);
  EXPECT_EQ(answers[0].fault, "it does not answer");
}

TEST_F(StatusServerTest, APathThatIsTooLongIsAnError) {
  path_ = folder_ + "/" + std::string(100, 'x') + ".sock";
  EXPECT_THROW(serve(), std::system_error);
}

}  // namespace
}  // namespace horo::tools
