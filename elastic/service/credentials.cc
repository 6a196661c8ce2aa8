// OpenSSL makes and verifies the certificates. Its error queue belongs to the thread and is shared with gRPC, which
// takes any entry for an error of its own: each public function leaves it empty.
#include "elastic/service/credentials.h"

#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "elastic/service/enrolment.h"
#include "horo/base/error.h"

namespace horo {

template <auto free>
struct LibcryptoFree {
  template <class Object>
  void operator()(Object* object) const {
    free(object);
  }
};

namespace {

using PrivateKey = std::unique_ptr<EVP_PKEY, LibcryptoFree<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, LibcryptoFree<X509_free>>;
using Request = std::unique_ptr<X509_REQ, LibcryptoFree<X509_REQ_free>>;
using TextBuffer = std::unique_ptr<BIO, LibcryptoFree<BIO_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, LibcryptoFree<X509_EXTENSION_free>>;
using KeyCheck = std::unique_ptr<EVP_PKEY_CTX, LibcryptoFree<EVP_PKEY_CTX_free>>;
using TrustStore = std::unique_ptr<X509_STORE, LibcryptoFree<X509_STORE_free>>;
using TrustCheck = std::unique_ptr<X509_STORE_CTX, LibcryptoFree<X509_STORE_CTX_free>>;

constexpr const char* kAuthorityName = "horo-authority";
constexpr const char* kEnrolmentName = "horo-enrolment";
constexpr int kValidDays = 3'650;
constexpr long kSecondsBefore = 24 * 3'600L;

class EmptyErrorQueue {
 public:
  EmptyErrorQueue() { ::ERR_clear_error(); }
  ~EmptyErrorQueue() { ::ERR_clear_error(); }
  EmptyErrorQueue(const EmptyErrorQueue&) = delete;
  EmptyErrorQueue& operator=(const EmptyErrorQueue&) = delete;
};

// For calls that only fail for want of memory, or by a defect.
void expect(bool is_done, const char* what) {
  if (is_done) return;
  const unsigned long code = ::ERR_peek_last_error();
  const char* reason = code == 0 ? nullptr : ::ERR_reason_error_string(code);
  throw std::runtime_error(std::string(what) + " failed in libcrypto" + (reason ? std::string(": ") + reason : ""));
}

// ---- Keys.

PrivateKey new_private_key() {
  PrivateKey key(EVP_EC_gen("P-256"));
  expect(key != nullptr, "making a key");
  return key;
}

bool is_p256(const EVP_PKEY* key) {
  std::array<char, 32> group{};
  return key != nullptr && ::EVP_PKEY_is_a(key, "EC") == 1 &&
         ::EVP_PKEY_get_group_name(key, group.data(), group.size(), nullptr) == 1 &&
         std::string_view(group.data()) == "prime256v1";
}

// A damaged text may have another private number beside the public key.
bool is_pair(EVP_PKEY* key) {
  const KeyCheck check(::EVP_PKEY_CTX_new(key, nullptr));
  expect(check != nullptr, "preparing the check of a key");
  return ::EVP_PKEY_pairwise_check(check.get()) == 1;
}

// The key as the DER of an ECPrivateKey (RFC 5915) without the public part, which OpenSSL computes.
PrivateKey enrolment_key(const JobKey& token, const std::string& job) {
  static constexpr std::array<unsigned char, 7> kBefore = {0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20};
  static constexpr std::array<unsigned char, 12> kAfter = {0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86,
                                                           0x48, 0xce, 0x3d, 0x03, 0x01, 0x07};
  PrivateNumber number = enrolment_number(token, job);
  std::array<unsigned char, kBefore.size() + std::tuple_size_v<PrivateNumber> + kAfter.size()> der{};
  auto end = std::copy(kBefore.begin(), kBefore.end(), der.begin());
  end = std::transform(number.begin(), number.end(), end, [](std::byte byte) { return std::to_integer<int>(byte); });
  std::copy(kAfter.begin(), kAfter.end(), end);
  const unsigned char* at = der.data();
  PrivateKey key(::d2i_PrivateKey(EVP_PKEY_EC, nullptr, &at, static_cast<long>(der.size())));
  ::OPENSSL_cleanse(der.data(), der.size());
  ::OPENSSL_cleanse(number.data(), number.size());
  expect(key != nullptr, "deriving the enrolment key");
  return key;
}

// ---- Texts.

int no_password(char*, int, int, void*) {
  return -1;  // without this function OpenSSL asks at the terminal
}

TextBuffer reader_of(const std::string& pem) {
  if (pem.size() > kMaxPemBytes) {
    throw ProtocolError("a PEM text of " + std::to_string(pem.size()) + " bytes, at most " +
                        std::to_string(kMaxPemBytes) + " expected");
  }
  TextBuffer buffer(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  expect(buffer != nullptr, "reading a text");
  return buffer;
}

// The text that `print(buffer)` writes. The buffer is overwritten when it is freed.
template <class Print>
std::string text_of(Print print) {
  const TextBuffer buffer(::BIO_new(::BIO_s_mem()));
  expect(buffer != nullptr && print(buffer.get()) == 1, "writing a PEM text");
  char* data = nullptr;
  const long size = BIO_get_mem_data(buffer.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

std::string pem_of(const Certificate& certificate) {
  return text_of([&](BIO* out) { return ::PEM_write_bio_X509(out, certificate.get()); });
}

std::string pem_of(const PrivateKey& key) {
  return text_of(
      [&](BIO* out) { return ::PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr); });
}

Certificate next_certificate(BIO* in) {
  return Certificate(::PEM_read_bio_X509(in, nullptr, no_password, nullptr));
}

// ---- Certificates.

struct Issuer {
  X509* certificate;  // null: the new certificate itself
  EVP_PKEY* key;
};

using Extensions = std::vector<std::pair<int, const char*>>;  // number of the extension: value in OpenSSL's notation

const Extensions& root_extensions() {
  static const Extensions extensions = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:1"},
                                        {NID_key_usage, "critical,keyCertSign"}};
  return extensions;
}

const Extensions& authority_extensions() {
  static const Extensions extensions = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                        {NID_key_usage, "critical,keyCertSign"}};
  return extensions;
}

const Extensions& client_extensions() {
  static const Extensions extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                                        {NID_key_usage, "critical,digitalSignature"},
                                        {NID_ext_key_usage, "clientAuth"}};
  return extensions;
}

const Extensions& server_extensions() {
  static const std::string dns_name = std::string("DNS:") + kServerName;
  static const Extensions extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                                        {NID_key_usage, "critical,digitalSignature"},
                                        {NID_ext_key_usage, "serverAuth"},
                                        {NID_subject_alt_name, dns_name.c_str()}};
  return extensions;
}

void set_serial(X509* certificate) {
  Nonce serial = make_nonce();
  serial[0] = (serial[0] & std::byte{0x3f}) | std::byte{0x40};  // positive, of constant length
  const auto* bytes = reinterpret_cast<const unsigned char*>(serial.data());
  expect(::ASN1_STRING_set(::X509_get_serialNumber(certificate), bytes, static_cast<int>(serial.size())) == 1,
         "setting a serial number");
}

void add_name(X509_NAME* subject, const char* field, const std::string& text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const int size = static_cast<int>(text.size());
  expect(::X509_NAME_add_entry_by_txt(subject, field, MBSTRING_UTF8, bytes, size, -1, 0) == 1, "setting a name");
}

void add_extension(X509* certificate, X509* issuer, int number, const char* value) {
  X509V3_CTX context{};
  ::X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(::X509V3_EXT_conf_nid(nullptr, &context, number, value));
  expect(extension != nullptr && ::X509_add_ext(certificate, extension.get(), -1) == 1, "adding an extension");
}

struct Subject {
  std::string job;  // as job_mark() returns it
  std::string name;
  EVP_PKEY* key;
};

// Unsigned, and without dates.
Certificate draft_of(const Subject& subject) {
  Certificate draft(::X509_new());
  expect(draft != nullptr && ::X509_set_version(draft.get(), X509_VERSION_3) == 1, "making a certificate");
  set_serial(draft.get());
  add_name(::X509_get_subject_name(draft.get()), "O", subject.job);
  add_name(::X509_get_subject_name(draft.get()), "CN", subject.name);
  expect(::X509_set_pubkey(draft.get(), subject.key) == 1, "setting a public key");
  return draft;
}

Certificate sign_draft(Certificate draft, const Extensions& extensions, const Issuer& issuer) {
  X509* above = issuer.certificate == nullptr ? draft.get() : issuer.certificate;
  expect(::X509_set_issuer_name(draft.get(), ::X509_get_subject_name(above)) == 1, "setting the issuer");
  for (const auto& [number, value] : extensions) add_extension(draft.get(), above, number, value);
  add_extension(draft.get(), above, NID_subject_key_identifier, "hash");
  if (above != draft.get()) add_extension(draft.get(), above, NID_authority_key_identifier, "keyid:always");
  expect(::X509_sign(draft.get(), issuer.key, ::EVP_sha256()) > 0, "signing a certificate");
  return draft;
}

Certificate make_certificate(const Subject& subject, const Extensions& extensions, const Issuer& issuer) {
  Certificate draft = draft_of(subject);
  expect(::X509_gmtime_adj(::X509_getm_notBefore(draft.get()), -kSecondsBefore) != nullptr &&
             ::X509_time_adj_ex(::X509_getm_notAfter(draft.get()), kValidDays, 0, nullptr) != nullptr,
         "setting the dates");
  return sign_draft(std::move(draft), extensions, issuer);
}

Certificate enrolment_root(const PrivateKey& key, const std::string& mark) {
  Certificate draft = draft_of({mark, kEnrolmentName, key.get()});
  expect(::ASN1_TIME_set_string_X509(::X509_getm_notBefore(draft.get()), "20200101000000Z") == 1 &&
             ::ASN1_TIME_set_string_X509(::X509_getm_notAfter(draft.get()), "99991231235959Z") == 1,
         "setting the dates");
  return sign_draft(std::move(draft), root_extensions(), {nullptr, key.get()});
}

// Signature, dates, and the use that the extensions allow.
bool is_signed_by(const Certificate& root, const Certificate& certificate, int purpose) {
  const TrustStore store(::X509_STORE_new());
  const TrustCheck check(::X509_STORE_CTX_new());
  expect(store != nullptr && check != nullptr && ::X509_STORE_add_cert(store.get(), root.get()) == 1 &&
             ::X509_STORE_CTX_init(check.get(), store.get(), certificate.get(), nullptr) == 1 &&
             ::X509_STORE_CTX_set_purpose(check.get(), purpose) == 1,
         "preparing a verification");
  return ::X509_verify_cert(check.get()) == 1;
}

std::optional<std::string> common_name(const Certificate& certificate) {
  const X509_NAME* subject = ::X509_get_subject_name(certificate.get());
  const int at = ::X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0 || ::X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0) return std::nullopt;
  const ASN1_STRING* text = ::X509_NAME_ENTRY_get_data(::X509_NAME_get_entry(subject, at));
  return std::string(reinterpret_cast<const char*>(::ASN1_STRING_get0_data(text)),
                     static_cast<std::size_t>(::ASN1_STRING_length(text)));
}

void check_name(const std::string& name) {
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (name.empty() || name.size() > kMaxCertificateName || !is_plain || name == kServerName) {
    throw ProtocolError("a certificate for a name of " + std::to_string(name.size()) +
                        " bytes: 1 to 64 printable characters without spaces expected, and not the server's name");
  }
}

}  // namespace

struct JobAuthority::Parts {
  PrivateKey key;
  Certificate certificate;  // self-signed
  Certificate cross;        // of the same name and key, signed by the enrolment key
  Certificate enrolment;    // root
  std::string mark;         // of the job
};

JobAuthority::JobAuthority(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
JobAuthority::JobAuthority(JobAuthority&& other) noexcept = default;
JobAuthority& JobAuthority::operator=(JobAuthority&& other) noexcept = default;
JobAuthority::~JobAuthority() = default;

JobAuthority JobAuthority::make(const JobKey& token, const std::string& job) {
  const EmptyErrorQueue queue;
  auto parts = std::make_unique<Parts>();
  parts->mark = job_mark(job);
  parts->key = new_private_key();
  const Subject subject{parts->mark, kAuthorityName, parts->key.get()};
  parts->certificate = make_certificate(subject, authority_extensions(), {nullptr, parts->key.get()});
  const PrivateKey enrolment = enrolment_key(token, job);
  parts->enrolment = enrolment_root(enrolment, parts->mark);
  parts->cross = make_certificate(subject, authority_extensions(), {parts->enrolment.get(), enrolment.get()});
  return JobAuthority(std::move(parts));
}

JobAuthority JobAuthority::from_pem(const std::string& pem, const JobKey& token, const std::string& job) {
  const EmptyErrorQueue queue;
  const TextBuffer keys = reader_of(pem), certificates = reader_of(pem);
  auto parts = std::make_unique<Parts>();
  parts->mark = job_mark(job);
  parts->key.reset(::PEM_read_bio_PrivateKey(keys.get(), nullptr, no_password, nullptr));
  parts->certificate = next_certificate(certificates.get());
  parts->cross = next_certificate(certificates.get());
  if (!is_p256(parts->key.get()) || parts->certificate == nullptr || parts->cross == nullptr) {
    throw ProtocolError("the authority of a job: a P-256 key and two certificates expected");
  }
  const bool is_own = is_pair(parts->key.get()) &&
                      ::X509_check_private_key(parts->certificate.get(), parts->key.get()) == 1 &&
                      ::X509_check_private_key(parts->cross.get(), parts->key.get()) == 1 &&
                      ::X509_verify(parts->certificate.get(), parts->key.get()) == 1 &&
                      is_signed_by(parts->certificate, parts->certificate, X509_PURPOSE_ANY);
  if (!is_own) throw ProtocolError("the authority of a job: its key and certificates do not belong together");
  const PrivateKey enrolment = enrolment_key(token, job);
  parts->enrolment = enrolment_root(enrolment, parts->mark);
  if (!is_signed_by(parts->enrolment, parts->cross, X509_PURPOSE_ANY)) {
    throw ProtocolError("the authority of a job: it is of another job, or of another token");
  }
  return JobAuthority(std::move(parts));
}

std::string JobAuthority::to_pem() const {
  const EmptyErrorQueue queue;
  std::string key = pem_of(parts_->key);
  std::string pem = key + pem_of(parts_->certificate) + pem_of(parts_->cross);
  cleanse(key);
  return pem;
}

Credentials JobAuthority::server() const {
  const EmptyErrorQueue queue;
  const PrivateKey key = new_private_key();
  const Issuer issuer{parts_->certificate.get(), parts_->key.get()};
  const Certificate leaf = make_certificate({parts_->mark, kServerName, key.get()}, server_extensions(), issuer);
  return {roots_pem() + pem_of(parts_->enrolment), pem_of(leaf) + pem_of(parts_->cross), pem_of(key)};
}

std::string JobAuthority::roots_pem() const {
  const EmptyErrorQueue queue;
  return pem_of(parts_->certificate);
}

std::string JobAuthority::sign(const std::string& request_pem, const std::string& name) const {
  const EmptyErrorQueue queue;
  check_name(name);
  const TextBuffer in = reader_of(request_pem);
  const Request request(::PEM_read_bio_X509_REQ(in.get(), nullptr, no_password, nullptr));
  EVP_PKEY* key = request == nullptr ? nullptr : ::X509_REQ_get0_pubkey(request.get());
  if (!is_p256(key)) throw ProtocolError("a certificate request: a PEM text with a P-256 key expected");
  if (::X509_REQ_verify(request.get(), key) != 1) throw ProtocolError("a certificate request: its signature is wrong");
  const Issuer issuer{parts_->certificate.get(), parts_->key.get()};
  return pem_of(make_certificate({parts_->mark, name, key}, client_extensions(), issuer));
}

std::optional<std::string> JobAuthority::issued(const std::string& certificate_pem) const {
  const EmptyErrorQueue queue;
  if (certificate_pem.size() > kMaxPemBytes) return std::nullopt;
  const TextBuffer in = reader_of(certificate_pem);
  const Certificate certificate = next_certificate(in.get());
  if (certificate == nullptr) return std::nullopt;
  if (!is_signed_by(parts_->certificate, certificate, X509_PURPOSE_SSL_CLIENT)) return std::nullopt;
  return common_name(certificate);
}

Credentials enrolment_credentials(const JobKey& token, const std::string& job) {
  const EmptyErrorQueue queue;
  const std::string mark = job_mark(job);
  const PrivateKey above = enrolment_key(token, job), key = new_private_key();
  const Certificate root = enrolment_root(above, mark);
  const Issuer issuer{root.get(), above.get()};
  const Certificate leaf = make_certificate({mark, kEnrolmentName, key.get()}, client_extensions(), issuer);
  return {pem_of(root), pem_of(leaf), pem_of(key)};
}

CertificateRequest make_request() {
  const EmptyErrorQueue queue;
  const PrivateKey key = new_private_key();
  const Request request(::X509_REQ_new());
  expect(request != nullptr && ::X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) == 1 &&
             ::X509_REQ_set_pubkey(request.get(), key.get()) == 1 &&
             ::X509_REQ_sign(request.get(), key.get(), ::EVP_sha256()) > 0,
         "making a certificate request");
  return {pem_of(key), text_of([&](BIO* out) { return ::PEM_write_bio_X509_REQ(out, request.get()); })};
}

void cleanse(std::string& secret) {
  ::OPENSSL_cleanse(secret.data(), secret.size());
  secret.clear();
}

}  // namespace horo
