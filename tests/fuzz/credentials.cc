// The PEM texts of a job's certificates: a text is refused, or is one that this authority has written. No text makes
// the authority know a name that it has not signed.
#include "elastic/service/credentials.h"

#include <array>
#include <string>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

constexpr const char* kFuzzedJob = "fuzz";
constexpr const char* kSignedName = "host-0-abc";

// Of one authority, made once for the process. Its keys are random: no result depends on them.
struct SignedTexts {
  JobKey token{};
  JobAuthority authority = JobAuthority::make(token, kFuzzedJob);
  std::string request = make_request().request_pem;
  std::array<std::string, 5> texts = {authority.to_pem(), request, authority.sign(request, kSignedName),
                                      enrolment_credentials(token, kFuzzedJob).certificate_pem,
                                      authority.server().certificate_pem};
};

// One of the texts with some characters changed, added or left out; or any text.
std::string text_from(FuzzInput& input, const SignedTexts& own) {
  const std::size_t which = input.number(1) % (own.texts.size() + 1);
  if (which == own.texts.size()) return {reinterpret_cast<const char*>(input.rest().data()), input.rest().size()};
  std::string text = own.texts[which];
  while (!input.is_empty() && !text.empty()) {
    const std::size_t what = input.number(1) % 4, at = input.below(text.size());
    const char character = static_cast<char>(input.number(1));
    if (what == 0) text[at] = character;
    if (what == 1) text.insert(at, 1, character);
    if (what == 2) text.erase(at, static_cast<unsigned char>(character));
    if (what == 3) text.insert(at, own.texts[input.below(own.texts.size())]);
    if (text.size() > 2 * kMaxPemBytes) break;
  }
  return text;
}

bool is_issued(const SignedTexts& own, const std::string& text) {
  const auto name = own.authority.issued(text);
  HORO_CHECK(!name || *name == kSignedName);
  return name.has_value();
}

bool is_loaded(const SignedTexts& own, const std::string& text) {
  const JobAuthority loaded = JobAuthority::from_pem(text, own.token, kFuzzedJob);
  HORO_CHECK(loaded.roots_pem() == own.authority.roots_pem());
  HORO_CHECK(own.authority.issued(loaded.sign(own.request, kSignedName)) == kSignedName);
  return true;
}

bool is_signed(const SignedTexts& own, const std::string& text, const std::string& name) {
  HORO_CHECK(own.authority.issued(own.authority.sign(text, name)) == name);
  return true;
}

}  // namespace

bool fuzz_credentials(std::span<const std::byte> bytes) {
  static const SignedTexts own;
  FuzzInput input(bytes);
  const std::size_t what = input.number(1) % 4;
  const std::vector<std::byte> named = what == 3 ? input.take(input.number(1)) : std::vector<std::byte>{};
  const std::string name =
      what == 3 ? std::string(reinterpret_cast<const char*>(named.data()), named.size()) : "host-1-a";
  try {
    if (what == 3) return is_signed(own, own.request, name);
    const std::string text = text_from(input, own);
    if (what == 0) return is_issued(own, text);
    return what == 1 ? is_loaded(own, text) : is_signed(own, text, name);
  } catch (const ProtocolError&) {
    return false;
  }
}

}  // namespace horo
