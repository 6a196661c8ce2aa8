#include "horo/session.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>
#include <numeric>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/forked.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/engine/engine.h"
#include "horo/engine/startup_agreement.h"
#include "horo/session_links.h"
#include "horo/session_memory.h"
#include "horo/tensors/requests.h"

namespace horo {
namespace {

// Plans that are not prepacked are packed at their release, so a failure (memory) has no effect.
void prepack_all(Engine& engine, std::vector<FilledPlan>& filled) noexcept {
  try {
    for (FilledPlan& one : filled) engine.prepack(std::move(one));
  } catch (const std::bad_alloc&) {
    log_debug("no memory to prepack a bucket");
  }
}

template <class... Owners>
void leak(Owners&... owners) {
  (static_cast<void>(owners.release()), ...);
}

const std::string& checked(const std::string& terms) {
  if (terms.size() <= kMaxTerms) return terms;
  throw std::invalid_argument("the terms of ranks that join and the settings have " + std::to_string(terms.size()) +
                              " bytes, at most " + std::to_string(kMaxTerms) + " are allowed");
}

}  // namespace

Session::Session(const Config& config) : Session(config, Exchange()) {}

Session::Session(const Config& config, const Exchange& exchange)
    : Session(before_join(config), config, first_links_by(before_join(config), exchange),
              reconnect_by(before_join(config))) {}

Session::Session(const Config& config, Links links, Reconnect reconnect)
    : Session(config, config, given(std::move(links)), std::move(reconnect)) {}

Session::Session(const Config& config, const JoinTerms& terms)
    : Session(checked_to_join(config), config, nullptr, nullptr, checked(terms_of(config) + terms.text)) {}

Session::Session(const Config& config, const Config& started_as, const FirstLinks& first, Reconnect reconnect,
                 const std::string& terms)
    : config_(config),
      started_as_(started_as),
      generation_(fork_generation()),
      pid_(::getpid()),
      timeline_(timeline_for(config)),
      step_file_(step_file_for(config)),
      steps_(steps_for(config, step_file_.get(), timeline_.get(), started_as.joins && !config.joins)),
      devices_(std::make_unique<CudaDevices>(config_)),
      registry_(std::make_unique<Registry>()),
      tensor_table_(std::make_unique<TensorTable>(config, *registry_, timeline_.get())),
      callers_(std::make_unique<Callers>()),
      engine_(std::make_unique<Engine>(
          config, Engine::Start{first, std::move(reconnect), terms},
          EngineContext{*tensor_table_, counters_, *registry_, *callers_, *timeline_, *steps_})),
      waits_(config_, {*tensor_table_, *callers_, *timeline_, *engine_, *steps_}) {
  if (!config.joins) set_check_context(config.rank, config.size, kFirstEpoch);  // else the engine knows its epoch
  set_log_rank(started_as.rank);
}

// A forked child leaks its copies: their destructors might wait for locks or threads that exist in the parent only.
Session::~Session() {
  if (is_here()) {
    shutdown(true);
    return;
  }
  leak(engine_, callers_, tensor_table_, registry_, devices_, steps_, step_file_, timeline_);
}

bool Session::is_here() const {
  return fork_generation() == generation_;
}

void Session::check_process() const {
  if (is_here()) return;
  const std::string rank = "rank " + std::to_string(config_.rank) + " (pid " + std::to_string(pid_) + ")";
  throw ShutDown("this process (pid " + std::to_string(::getpid()) + ") was forked from " + rank +
                 " after horo.init, and has neither its connections nor its threads: horo works in " + rank +
                 " alone. A process that needs horo is started anew ('spawn'), not by fork");
}

const Counters& Session::counters() const {
  check_process();
  return counters_;
}

Topology Session::topology() const {
  check_process();
  if (has_yet_to_join()) return topology_before_join(started_as_);
  return is_elastic() ? engine_->topology(tensor_table_->seen_epoch()) : engine_->topology();
}

std::vector<std::uint32_t> Session::members() const {
  check_process();
  if (has_yet_to_join()) {
    std::vector<std::uint32_t> ids(static_cast<std::size_t>(topology().size));
    std::iota(ids.begin(), ids.end(), 0U);
    return ids;
  }
  return engine_->members(is_elastic() ? tensor_table_->seen_epoch() : UINT32_MAX);
}

std::shared_ptr<const DeviceEvent> Session::record(int device, CudaStream stream) {
  check_process();
  return std::make_shared<const DeviceEvent>(devices_->device(device), stream);
}

void Session::check_device(const TensorSpec& spec) {
  if (spec.device != DeviceType::kHost) devices_->load();
}

Key Session::declare(const TensorSpec& spec) {
  check_process();
  check_device(spec);
  return tensor_table_->declare(spec);
}

void Session::undeclare(std::span<const Key> keys) {
  check_process();
  tensor_table_->undeclare(keys);
}

std::shared_ptr<Work> Session::submit(const Submission& submission) {
  return submit(std::span(&submission, 1)).front();
}

std::vector<std::shared_ptr<Work>> Session::submit(std::span<const Submission> submissions) {
  check_process();
  return hand_over(tensor_table_->submit(submissions));
}

std::shared_ptr<Work> Session::submit(const TensorSpec& spec, const Submission& submission) {
  check_process();
  check_device(spec);
  return hand_over(tensor_table_->submit(spec, submission)).front();
}

std::shared_ptr<Work> Session::submit(const TensorSpec& spec, const void* in, void* out) {
  return submit(spec, Submission{0, in, out});
}

std::vector<std::shared_ptr<Work>> Session::submit(Unit unit) {
  check_process();
  for (const TensorSpec& spec : unit.specs) check_device(spec);
  return hand_over(tensor_table_->submit_unit(unit.name, std::move(unit.specs), std::move(unit.submissions)));
}

std::vector<std::shared_ptr<Work>> Session::hand_over(TensorTable::Accepted accepted) {
  if (accepted.wake) engine_->wake();  // before anything that throws: later callers do not wake the engine again
  prepack_all(*engine_, accepted.filled);
  counters_.add_submitted(accepted.works.size());
  const TimePoint now = Clock::now();
  callers_->submitted(now);
  steps_->submitted(now);
  return std::move(accepted.works);
}

std::shared_ptr<Work> Session::request(TensorSpec spec) {
  check_process();
  return hand_over(tensor_table_->request(std::move(spec))).front();
}

std::shared_ptr<Work> Session::add_set(const std::vector<int>& ranks, const std::string& name, bool shrinks) {
  return request(add_set_request(ranks, name, shrinks, false));
}

std::shared_ptr<Work> Session::add_set_by_members(const std::vector<int>& ranks, const std::string& name,
                                                  bool shrinks) {
  return request(add_set_request(ranks, name, shrinks, true));
}

std::shared_ptr<Work> Session::remove_set(std::uint32_t set) {
  return request(remove_set_request(set));
}

SetInfo Session::set_info(std::uint32_t set) const {
  check_process();
  return tensor_table_->set_info(set);
}

std::shared_ptr<Work> Session::join(std::uint32_t set) {
  return request(join_request(set));
}

std::shared_ptr<Work> Session::rebuild() {
  check_process();
  if (!engine_->can_rebuild()) {
    throw std::invalid_argument("rebuild: rank " + std::to_string(config_.rank) +
                                " cannot connect again: its connections were made by MPI, by an exchange of the caller "
                                "or by the caller itself");
  }
  return request(rebuild_request());
}

void Session::can_grow(const std::string& terms) {
  check_process();
  engine_->tell(CanGrow{checked(terms_of(config_) + terms)});
}

void Session::cannot_grow() {
  check_process();
  engine_->tell(CanGrow{});
}

std::vector<std::uint32_t> Session::joiners() const {
  check_process();
  return engine_->joiners();
}

std::shared_ptr<Work> Session::grow() {
  check_process();
  const std::string rank = "rank " + std::to_string(config_.rank);
  if (!engine_->can_grow()) throw std::invalid_argument("grow: " + rank + " is in a static job, which has no joiners");
  if (encode(tensor_table_->for_joiners(engine_->members(UINT32_MAX), UINT32_MAX)).size() > kMaxSetState) {
    throw std::invalid_argument("grow: " + rank + " has process sets of more than " + std::to_string(kMaxSetState) +
                                " bytes, more than a rank that joins can be told: use fewer process sets");
  }
  return request(rebuild_request());
}

void Session::synced(const std::string& text) {
  check_process();
  engine_->tell(Synced{engine_->topology().epoch, text});
}

bool Session::wait(std::span<const std::shared_ptr<Work>> works, TimePoint until) {
  check_process();
  return waits_.wait(works, SessionWaits::For::kEnd, until);
}

bool Session::wait_stream(std::span<const std::shared_ptr<Work>> works, int device, CudaStream stream,
                          TimePoint until) {
  check_process();
  const CudaDevice waiting = devices_->device(device);
  {
    const OnDevice here(waiting);
    waiting.check_stream(stream);
  }
  return waits_.wait_stream(works, waiting, stream, until);
}

bool Session::wait_issued(std::span<const std::shared_ptr<Work>> works, TimePoint until) {
  check_process();
  return waits_.wait(works, SessionWaits::For::kIssue, until);
}

bool Session::finish_devices(TimePoint until) {
  check_process();
  return waits_.finish_devices(until);
}

bool Session::poll(const Work& work) {
  check_process();
  return waits_.poll(work);
}

void Session::run(const TensorSpec& spec, const void* in, void* out) {
  const std::array works = {submit(spec, in, out)};
  wait(works, TimePoint::max());
  works.front()->outcome();
}

void Session::register_op(CustomOp op) {
  check_process();
  registry_->add_op(std::move(op));
}

void Session::register_codec(std::unique_ptr<Codec> codec) {
  check_process();
  registry_->codecs().add(std::move(codec));
}

void Session::step_end(std::uint32_t set) {
  end_round(set);
  if (set == 0) steps_->end({.at = Clock::now()}, {});
}

void Session::end_round(std::uint32_t set) {
  check_process();
  if (tensor_table_->step_end(set)) engine_->wake();
  if (set == 0 && !steps_->is_on() && timeline_->is_on()) timeline_->end_step(Clock::now());
}

void Session::record_mark(std::uint32_t mark, int device, CudaStream stream) {
  check_process();
  if (steps_->is_training_thread()) steps_->record(devices_->device(device), stream, mark);
}

Steps& Session::steps() const {
  check_process();
  return *steps_;
}

void Session::begin_round(std::uint32_t set, std::uint64_t stream, std::uint64_t step, std::uint64_t round) {
  check_process();
  tensor_table_->begin_round({{set, stream}, {step, round}});
}

void Session::fail_round(std::uint32_t set, std::uint64_t stream, const std::string& reason) {
  check_process();
  if (tensor_table_->fail_round({{set, stream}, reason})) engine_->wake();
}

Allocation Session::allocate(std::uint32_t set, std::size_t bytes) {
  check_process();
  tensor_table_->check_member(set);
  const auto group = engine_->group(set);
  if (!group) tensor_table_->check_member(set);  // the reason, if the session has ended
  if (!group) throw ShutDown("process set " + std::to_string(set) + " ended while memory for it was asked for");
  return allocate_for(*group, config_.rank, bytes);
}

std::vector<BucketPlace> Session::places(std::span<const std::shared_ptr<Work>> works) const {
  check_process();
  std::vector<Key> keys;
  keys.reserve(works.size());
  for (const auto& work : works) keys.push_back(work->key());
  return tensor_table_->places(keys);
}

std::uint64_t Session::plans_version() const {
  check_process();
  return tensor_table_->plans_version();
}

void Session::abort(const std::string& reason, const std::string& failure) {
  check_process();
  engine_->abort(reason, failure);
}

std::optional<TimePoint> Session::notice() const {
  check_process();
  const auto drained = engine_->notice();
  return drained ? drained : steps_->notice();
}

void Session::shutdown(bool with_process) {
  check_process();
  waits_.finish_devices(TimePoint::max());
  engine_->leave(with_process);
  steps_->finish();
  if (step_file_) step_file_->close();
  try {
    timeline_->stop();
  } catch (const std::exception& error) {
    log_warning(error.what());  // the ranks leave in good order all the same
  }
}

void Session::start_timeline(const std::string& path) {
  check_process();
  const Topology now = topology();
  timeline_->start(timeline_path(path, now.rank), now.rank, now.size);
}

void Session::stop_timeline() {
  check_process();
  timeline_->stop();
}

std::vector<ReadyTime> Session::ready_times() const {
  check_process();
  return engine_->ready_times();
}

std::optional<std::uint64_t> Session::next_question(TimePoint until) {
  check_process();
  return engine_->stall_diagnosis().next(until);
}

void Session::answer(std::uint64_t question, const std::string& text) {
  check_process();
  if (engine_->stall_diagnosis().answer(question, text)) engine_->wake();
}

std::uint64_t Session::kernel_bytes_sent() const {
  check_process();
  return engine_->kernel_bytes_sent();
}

}  // namespace horo
