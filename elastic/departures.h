// Departures: the members that have gone out since the last decision, in words for the story.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "elastic/messages.h"

namespace horo {

class Departures {
 public:
  // A failure is told at the end of the job, if no decision has told it.
  void add(MemberId id, bool is_failure, std::string text) { all_.push_back({id, is_failure, std::move(text)}); }
  void take_back(MemberId id) {
    std::erase_if(all_, [id](const Departure& one) { return one.id == id; });
  }
  void clear() { all_.clear(); }
  bool is_empty() const { return all_.empty(); }
  // "rank 1 died (signal 9 (SIGKILL)), rank 2 left; "; or empty.
  std::string text() const {
    std::string text;
    for (const Departure& one : all_) text += (text.empty() ? "" : ", ") + one.text;
    return text.empty() ? text : text + "; ";
  }
  std::vector<std::string> failures() const {
    std::vector<std::string> texts;
    for (const Departure& one : all_) {
      if (one.is_failure) texts.push_back(one.text);
    }
    return texts;
  }

 private:
  struct Departure {
    MemberId id = 0;
    bool is_failure = false;
    std::string text;
  };
  std::vector<Departure> all_;
};

}  // namespace horo
