#include "elastic/joiners.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "elastic/texts.h"

namespace horo {
namespace {

using NamedTerms = std::vector<std::pair<std::string_view, std::string_view>>;

NamedTerms named_terms(std::string_view text) {
  NamedTerms terms;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = std::min(line.find('='), line.size());
    terms.emplace_back(line.substr(0, equals), line.substr(std::min(equals + 1, line.size())));
  }
  return terms;
}

std::optional<std::string_view> value_of(const NamedTerms& terms, std::string_view name) {
  const auto found = std::find_if(terms.begin(), terms.end(), [&](const auto& term) { return term.first == name; });
  return found == terms.end() ? std::nullopt : std::optional(found->second);
}

std::string words_of(std::optional<std::string_view> value) {
  return value ? printable(*value) : "absent";
}

}  // namespace

std::optional<std::string> difference_of(const std::string& here, const std::string& ranks) {
  if (here == ranks) return std::nullopt;
  const NamedTerms mine = named_terms(here), theirs = named_terms(ranks);
  for (const NamedTerms& terms : {theirs, mine}) {
    for (const auto& [name, value] : terms) {
      const auto my_value = value_of(mine, name), their_value = value_of(theirs, name);
      if (my_value == their_value) continue;
      return printable(name) + " is " + words_of(my_value) + " here and " + words_of(their_value) +
             " on the ranks that it joins";
    }
  }
  return "the terms are in another order than on the ranks that it joins";
}

// ---- What has happened.

void Joiners::can_grow(MemberId id, const std::string& terms) {
  if (terms.empty()) {
    terms_.erase(id);
  } else {
    terms_[id] = terms;
  }
  for (auto& [joiner, state] : joiners_) state.is_compared = false;
}

bool Joiners::ready(MemberId id, const Ready& message, TimePoint now) {
  Joiner& joiner = joiners_.at(id);
  terms_[id] = message.terms;
  joiner.card = message.card;
  joiner.is_compared = false;
  if (joiner.ready_at) return false;
  joiner.ready_at = now;
  return true;
}

bool Joiners::sync(MemberId id) {
  const auto found = joiners_.find(id);
  return found != joiners_.end() && found->second.is_inside && !std::exchange(found->second.has_state, true);
}

void Joiners::end(MemberId id) {
  terms_.erase(id);
  if (const auto found = joiners_.find(id); found != joiners_.end()) found->second.is_out = true;
}

void Joiners::fail_border(TimePoint now) {
  const std::chrono::seconds wait(std::int64_t{1} << std::min(failed_borders_++, 10));
  retry_at_ = now + std::min(wait, kLongestBackOff);
}

// ---- Which processes are what.

std::vector<MemberId> Joiners::outside() const {
  std::vector<MemberId> found;
  for (const auto& [id, joiner] : joiners_) {
    if (!joiner.is_inside && !joiner.is_out) found.push_back(id);
  }
  return found;
}

std::size_t Joiners::most_with(MemberId member) const {
  const auto found = terms_.find(member);
  const auto text = found == terms_.end() ? std::nullopt : value_of(named_terms(found->second), "most_ranks");
  std::size_t most = SIZE_MAX;
  if (text) std::from_chars(text->data(), text->data() + text->size(), most);
  return std::max<std::size_t>(most, 1);
}

std::vector<MemberId> Joiners::candidates(const Silences& silences) const {
  std::vector<MemberId> found = outside();
  std::erase_if(found, [&](MemberId id) { return !joiners_.at(id).is_compared || silences.is_still(id); });
  return found;
}

std::vector<std::pair<MemberId, std::string>> Joiners::compare_with(MemberId member) {
  std::vector<std::pair<MemberId, std::string>> differing;
  const auto expected = terms_.find(member);
  if (expected == terms_.end()) return differing;
  for (const MemberId id : outside()) {
    Joiner& joiner = joiners_.at(id);
    if (!joiner.ready_at || joiner.is_compared) continue;
    const auto difference = difference_of(terms_.at(id), expected->second);
    joiner.is_compared = !difference;
    if (difference) differing.emplace_back(id, *difference);
  }
  return differing;
}

// ---- Grow.

std::optional<TimePoint> Joiners::window_end() const {
  std::optional<TimePoint> end;
  for (const MemberId id : outside()) {
    const auto& ready_at = joiners_.at(id).ready_at;
    if (ready_at) end = std::min(end.value_or(TimePoint::max()), *ready_at + limits_.window);
  }
  return end;
}

std::optional<Grow> Joiners::next_grow(std::size_t room, const Silences& silences, TimePoint now) {
  std::vector<MemberId> ready = candidates(silences);
  if (told_ && !ready.empty()) return std::nullopt;
  if (told_) {
    told_.reset();
    return Grow{};
  }
  if (ready.empty() || room == 0 || now < retry_at_) return std::nullopt;
  const std::vector<MemberId> started = outside();
  const bool are_all =
      std::all_of(started.begin(), started.end(), [&](MemberId id) { return is_ready(id) || silences.is_still(id); });
  if (!are_all && now < window_end()) return std::nullopt;
  ready.resize(std::min(ready.size(), room));
  told_ = now;
  is_late_ = false;
  return Grow{std::move(ready)};
}

bool Joiners::is_late(TimePoint now) {
  return told_ && now >= *told_ + limits_.timeout && !std::exchange(is_late_, true);
}

std::optional<TimePoint> Joiners::deadline(TimePoint now) const {
  if (!told_ && now < retry_at_) return retry_at_;
  const auto next = !told_ ? window_end() : is_late_ ? std::nullopt : std::optional(*told_ + limits_.timeout);
  return next && *next > now ? next : std::nullopt;
}

}  // namespace horo
