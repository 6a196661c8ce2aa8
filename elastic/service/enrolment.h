// What both sides of an enrolment derive from the token and the name of a job.
#pragma once

#include <string>

#include "horo/base/auth.h"

namespace horo {

// A private P-256 key: a big-endian number, greater than 0 and less than the order of the curve.
using PrivateNumber = Mac;
bool is_private_number(const PrivateNumber& number);

// The same for the same token and name on all hosts and in all versions. The caller overwrites it.
PrivateNumber enrolment_number(const JobKey& token, const std::string& job);

// The organization in the certificates of a job: "horo job " and 32 hexadecimal digits. It tells a reader which job it
// is; certificates of another job are refused because their keys differ.
std::string job_mark(const std::string& job);

}  // namespace horo
