// RankSupervisor: the event loop in the guard. Starts this host's ranks and runs until the last one has ended.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/elastic_job.h"
#include "tools/horo/run/events.h"
#include "tools/horo/run/job_input.h"
#include "tools/horo/run/launcher.h"
#include "tools/horo/run/local_world.h"
#include "tools/horo/run/output.h"
#include "tools/horo/run/rank_stream.h"
#include "tools/horo/run/respawns.h"
#include "tools/horo/run/status_server.h"
#include "tools/horo/run/step_figures.h"
#include "tools/horo/run/story.h"
#include "tools/horo/run/verdict.h"
#include "tools/horo/run/why_question.h"

namespace horo::tools {

class RankSupervisor {
 public:
  // All arguments outlive this object. `lifeline_fd` reaches its end when the front process of the job dies.
  RankSupervisor(const Launch& launch, const LocalWorld& world, int lifeline_fd);
  ~RankSupervisor();
  RankSupervisor(const RankSupervisor&) = delete;
  RankSupervisor& operator=(const RankSupervisor&) = delete;

  // Blocks until the job has ended and returns its exit code. Processes that ranks started outside of their process
  // groups may still run.
  int run();

 private:
  static constexpr double kGraceSeconds = 5;  // from the first failure to SIGTERM

  // Of --output-dir; not open without it.
  struct RankFiles {
    Descriptor output, errors;
  };
  // A process of the job, in a slot of this host.
  struct Rank {
    Rank(RankSupervisor& job, MemberId id, const RankSlot& slot, struct Child child);
    bool is_finished() const { return !is_running && !output.is_open() && !errors.is_open(); }

    // It is a new member in the same process.
    void become(MemberId member, const std::string& prefix);

    MemberId id;
    const RankSlot& slot;
    const pid_t pid;
    bool is_running = true, is_stopped = false;
    bool is_sent_away = false;    // it has got SIGTERM of this process
    bool is_lost_before = false;  // it had ended when the job was interrupted
    bool has_joined = false;      // one that was started later: its slot is told
    bool is_gone = false;         // its slot is told
    RankEnd end;
    RankStream output, errors;
    PatientTimer leftovers;  // ends the other processes of its process group
    ChildWatch ended;
  };

  void make_files_of(MemberId id);
  void start_ranks();
  void start_rank(MemberId id, const RankSlot& slot);
  std::string prefix_of(MemberId id) const;
  RankStream::Destinations destinations_of(MemberId id, bool is_errors);
  std::unique_ptr<JobInput> make_input();
  std::unique_ptr<ElasticJob> make_elastic();
  std::optional<int> status_of_ending_rank(MemberId id);
  void carry_out(const GuardActions& actions);
  void carry_out(const Say& told);
  void carry_out(const EndJob& end) { end_job(end.text); }
  void carry_out(const FailHost& failure);
  void carry_out(const KillMember& order);
  void carry_out(const MemberReturns& event);
  void on_elastic_change();
  std::function<void(bool)> on_stop_of(Rank& rank);
  void on_end(Rank& rank, int status);
  void tell_moment(const Rank& rank, const std::string& what);
  void end_leftovers(Rank& rank);
  void on_signal(int signal);
  // The notice to the ranks: supervisor_drain.cc.
  std::chrono::milliseconds grace() const;
  bool may_drain() const;
  bool drain();  // false: the ranks cannot be told
  bool drain_static();
  void on_notice_over();
  bool is_ended_by_notice() const;
  void on_writer();
  void on_timeout();
  void on_grace_over();
  void end_job(const std::string& text);
  void send_away(Rank& rank, int signal);
  void terminate(bool spares_left = false);
  bool has_left(const Rank& rank) const { return elastic_ && elastic_->has_left(rank.id); }
  void signal_running(int signal);
  // Processes that are started later: supervisor_joiners.cc.
  std::unique_ptr<Respawns> make_respawns() const;
  void start_joiners();
  bool may_start_joiners() const;
  void tell_slots(TimePoint now);
  SlotLoss loss_of(const Rank& rank) const;
  void tell_none_is_started(TimePoint now);
  void start_joiner(const Respawns::Start& start, TimePoint now);
  ResizeAnswer resize(int ranks);
  std::string why_no_resize(int ranks) const;
  // The end: supervisor_end.cc.
  void check_end();
  bool end_finished_ranks();
  bool is_one_running() const;
  void end_evicted();
  void conclude();
  bool has_failed_rank() const;
  bool has_job_survived() const;
  bool is_survived(const Rank& rank) const;
  int code_without_failure();
  void say(const std::string& text);
  // For `horo status` and `horo why`: supervisor_status.cc.
  void open_status();
  void on_asked(StatusQuestion question);
  void answer_status();
  void answer_why();
  void tell_progress();
  JobStatus job_status() const;
  void add_other_members(JobStatus& status) const;
  std::string running_text(bool with_left = true) const;

  const Launch& launch_;
  const LocalWorld& world_;
  struct ev_loop* const loop_;
  const std::string host_;
  const double started_s_ = seconds_since_1970();
  const TimePoint started_ = Clock::now();
  std::unique_ptr<StreamWriter> output_, own_errors_;
  StreamWriter* errors_;             // output_ if stdout and stderr are one file, so that lines stay whole
  std::unique_ptr<JobInput> input_;  // null: the stdin of the ranks is empty
  IoWatch lifeline_;
  PatientTimer grace_, notice_;
  Timer timeout_, answers_due_, progress_;
  std::list<SignalWatch> signals_;
  std::unique_ptr<ElasticJob> elastic_;  // null unless the job is elastic
  std::unique_ptr<Respawns> respawns_;   // null unless ranks may be started later
  Timer joiners_due_;
  std::map<MemberId, RankFiles> files_;  // of ranks that have not started
  std::map<MemberId, Rank> ranks_;
  Story story_;
  StepFiguresOfRanks steps_;
  WhyQuestion why_;
  std::unique_ptr<StatusServer> status_;  // null: there is no safe folder for its socket
  int ends_ = 0;                          // ranks that have ended
  bool are_all_started_ = false;
  std::optional<int> code_;      // set if the verdict does not decide it
  bool is_failing_ = false;      // a rank has failed; the others are in their grace period
  bool is_terminating_ = false;  // the ranks have got SIGTERM
  bool is_job_over_ = false;     // an elastic job cannot go on: its ranks end by themselves
  bool is_interrupted_ = false;
  bool is_given_up_ = false;     // the decision has ended the job
  bool is_draining_ = false;     // the ranks have got a notice
  bool is_notice_over_ = false;  // and their grace is over
  bool is_left_behind_ = false;  // an elastic job goes on without this host
  bool is_starting_ = false;     // a rank that joins
  bool is_concluded_ = false;
};

}  // namespace horo::tools
