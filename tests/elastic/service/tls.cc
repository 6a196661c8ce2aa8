#include "tests/elastic/service/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>

#include "horo/base/check.h"

namespace horo {
namespace {

template <auto free>
struct TlsFree {
  template <class Object>
  void operator()(Object* object) const {
    free(object);
  }
};
using TlsContext = std::unique_ptr<SSL_CTX, TlsFree<SSL_CTX_free>>;
using TlsSide = std::unique_ptr<SSL, TlsFree<SSL_free>>;
using TlsText = std::unique_ptr<BIO, TlsFree<BIO_free>>;
using TlsCertificate = std::unique_ptr<X509, TlsFree<X509_free>>;
using TlsKey = std::unique_ptr<EVP_PKEY, TlsFree<EVP_PKEY_free>>;
using TlsRequest = std::unique_ptr<X509_REQ, TlsFree<X509_REQ_free>>;

TlsText text(const std::string& pem) {
  return TlsText(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

std::string written(BIO* out) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(out, &data);
  return {data, static_cast<std::size_t>(size)};
}

TlsCertificate certificate(BIO* in) {
  return TlsCertificate(::PEM_read_bio_X509(in, nullptr, nullptr, nullptr));
}

TlsContext context(const Credentials& own, const SSL_METHOD* method) {
  TlsContext made(::SSL_CTX_new(method));
  HORO_CHECK(SSL_CTX_set_min_proto_version(made.get(), TLS1_3_VERSION) == 1);
  const TlsText chain = text(own.certificate_pem), key = text(own.key_pem), roots = text(own.roots_pem);
  HORO_CHECK(::SSL_CTX_use_certificate(made.get(), certificate(chain.get()).get()) == 1);
  while (TlsCertificate above = certificate(chain.get())) {
    HORO_CHECK(SSL_CTX_add1_chain_cert(made.get(), above.get()) == 1);
  }
  const TlsKey own_key(::PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr));
  HORO_CHECK(::SSL_CTX_use_PrivateKey(made.get(), own_key.get()) == 1);
  while (TlsCertificate root = certificate(roots.get())) {
    HORO_CHECK(::X509_STORE_add_cert(::SSL_CTX_get_cert_store(made.get()), root.get()) == 1);
  }
  ::SSL_CTX_set_verify(made.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  ::ERR_clear_error();
  return made;
}

// One call of the side; the reason if it failed, empty if it is done or waits for the other side.
std::string step(SSL* side) {
  ::ERR_clear_error();
  char byte = 0;
  const int done = ::SSL_is_init_finished(side) ? ::SSL_read(side, &byte, 1) : ::SSL_do_handshake(side);
  const int error = done == 1 ? SSL_ERROR_NONE : ::SSL_get_error(side, done);
  if (error == SSL_ERROR_NONE || error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return {};
  const long verified = ::SSL_get_verify_result(side);
  if (verified != X509_V_OK) return ::X509_verify_cert_error_string(verified);
  const char* reason = ::ERR_reason_error_string(::ERR_peek_error());
  return reason == nullptr ? "failed" : reason;
}

std::string pem_of_peer(const SSL* side) {
  const TlsCertificate peer(::SSL_get1_peer_certificate(side));
  if (peer == nullptr) return {};
  const TlsText out(::BIO_new(::BIO_s_mem()));
  HORO_CHECK(::PEM_write_bio_X509(out.get(), peer.get()) == 1);
  return written(out.get());
}

}  // namespace

TlsOutcome shake_hands(const Credentials& server, const Credentials& client) {
  const TlsContext server_context = context(server, ::TLS_server_method());
  const TlsContext client_context = context(client, ::TLS_client_method());
  const TlsSide at_server(::SSL_new(server_context.get())), at_client(::SSL_new(client_context.get()));
  BIO *server_end = nullptr, *client_end = nullptr;
  HORO_CHECK(::BIO_new_bio_pair(&server_end, 0, &client_end, 0) == 1);
  ::SSL_set_bio(at_server.get(), server_end, server_end);
  ::SSL_set_bio(at_client.get(), client_end, client_end);
  ::SSL_set_accept_state(at_server.get());
  ::SSL_set_connect_state(at_client.get());
  HORO_CHECK(::SSL_set1_host(at_client.get(), kServerName) == 1);
  TlsOutcome result;
  for (int round = 0; round < 10 && result.server_says.empty() && result.client_says.empty(); ++round) {
    result.client_says = step(at_client.get());
    result.server_says = step(at_server.get());
  }
  const bool are_finished =
      ::SSL_is_init_finished(at_server.get()) == 1 && ::SSL_is_init_finished(at_client.get()) == 1;
  result.is_done = are_finished && result.server_says.empty() && result.client_says.empty();
  result.server_saw = pem_of_peer(at_server.get());
  result.version = ::SSL_get_version(at_client.get());
  ::ERR_clear_error();
  return result;
}

std::string flawed_request(Flaw flaw) {
  const TlsKey other(EVP_EC_gen("P-256"));
  TlsKey key(EVP_EC_gen(flaw == Flaw::kLargeCurve ? "P-521" : "P-256"));
  if (flaw == Flaw::kRsaKey) key.reset(EVP_RSA_gen(1024));
  const TlsRequest request(::X509_REQ_new());
  HORO_CHECK(::X509_REQ_set_pubkey(request.get(), key.get()) == 1);
  if (flaw == Flaw::kOtherName) {
    const auto* name = reinterpret_cast<const unsigned char*>("root");
    X509_NAME* subject = ::X509_REQ_get_subject_name(request.get());
    HORO_CHECK(::X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, name, -1, -1, 0) == 1);
  }
  EVP_PKEY* signer = flaw == Flaw::kSignature ? other.get() : key.get();
  HORO_CHECK(::X509_REQ_sign(request.get(), signer, ::EVP_sha256()) > 0);
  const TlsText out(::BIO_new(::BIO_s_mem()));
  HORO_CHECK(::PEM_write_bio_X509_REQ(out.get(), request.get()) == 1);
  return written(out.get());
}

std::string text_of_certificate(const std::string& pem) {
  const TlsText in = text(pem), out(::BIO_new(::BIO_s_mem()));
  HORO_CHECK(::X509_print(out.get(), certificate(in.get()).get()) == 1);
  return written(out.get());
}

}  // namespace horo
