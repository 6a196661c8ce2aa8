#include "elastic/service/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "horo/base/error.h"
#include "tests/elastic/service/tls.h"

namespace horo {
namespace {

using testing::HasSubstr;

class JobCredentials : public testing::Test {
 protected:
  std::string client(const std::string& name) const { return authority_.sign(make_request().request_pem, name); }

  const JobKey token_ = make_job_key();
  const JobAuthority authority_ = JobAuthority::make(token_, "job");
};

std::string first_certificate(const std::string& pem) {
  const std::string end = "-----END CERTIFICATE-----\n";
  return pem.substr(0, pem.find(end) + end.size());
}

TEST_F(JobCredentials, TheNameIsTheAuthoritysChoice) {
  EXPECT_EQ(authority_.issued(authority_.sign(flawed_request(Flaw::kNone), "host-1")), "host-1");
  EXPECT_EQ(authority_.issued(authority_.sign(flawed_request(Flaw::kOtherName), "host-1")), "host-1");
  EXPECT_EQ(authority_.issued(client("a.b:7/2_3")), "a.b:7/2_3");
  EXPECT_EQ(authority_.issued(client(std::string(64, 'x'))), std::string(64, 'x'));
}

TEST_F(JobCredentials, NamesThatCouldMeanSomethingElseAreRefused) {
  using namespace std::string_literals;
  for (const std::string& name : {""s, " a"s, "a\nb"s, "a\0b"s, "\xc3\xa4"s, std::string(65, 'x'), kServerName + ""s}) {
    EXPECT_THROW(client(name), ProtocolError) << name;
  }
}

TEST_F(JobCredentials, OnlyClientCertificatesOfThisAuthorityAreIssued) {
  EXPECT_EQ(authority_.issued(enrolment_credentials(token_, "job").certificate_pem), std::nullopt);
  EXPECT_EQ(authority_.issued(enrolment_credentials(token_, "job").roots_pem), std::nullopt);
  EXPECT_EQ(authority_.issued(authority_.server().certificate_pem), std::nullopt);
  const JobAuthority other = JobAuthority::make(token_, "job");
  EXPECT_EQ(authority_.issued(other.sign(make_request().request_pem, "host-1")), std::nullopt);
  EXPECT_EQ(authority_.issued(other.roots_pem() + client("host-1")), std::nullopt);
  EXPECT_EQ(authority_.issued(""), std::nullopt);
  EXPECT_EQ(authority_.issued(std::string(kMaxPemBytes + 1, ' ') + client("host-1")), std::nullopt);
}

TEST_F(JobCredentials, ARequestWithoutProofOfItsKeyIsRefused) {
  EXPECT_THROW(authority_.sign(flawed_request(Flaw::kSignature), "host-1"), ProtocolError);
}

TEST_F(JobCredentials, ARequestWithAnotherKindOfKeyIsRefused) {
  EXPECT_THROW(authority_.sign(flawed_request(Flaw::kLargeCurve), "host-1"), ProtocolError);
  EXPECT_THROW(authority_.sign(flawed_request(Flaw::kRsaKey), "host-1"), ProtocolError);
}

TEST_F(JobCredentials, AnOversizedRequestIsRefused) {
  const std::string request = make_request().request_pem;
  const std::string fits(kMaxPemBytes - request.size() - 1, 'x');
  EXPECT_EQ(authority_.issued(authority_.sign(fits + "\n" + request, "host-1")), "host-1");
  EXPECT_THROW(authority_.sign(fits + "x\n" + request, "host-1"), ProtocolError);
}

TEST_F(JobCredentials, TextsThatAreNoPemAreRefused) {
  const std::string encrypted =
      "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAg=\n"
      "-----END ENCRYPTED PRIVATE KEY-----\n";
  for (const std::string& text : {std::string(), std::string("x"), client("host-1"), make_request().key_pem, encrypted,
                                  std::string("-----BEGIN CERTIFICATE REQUEST-----\n")}) {
    EXPECT_THROW(authority_.sign(text, "host-1"), ProtocolError);
    EXPECT_THROW(JobAuthority::from_pem(text, token_, "job"), ProtocolError);
  }
}

TEST_F(JobCredentials, AStoredAuthorityIsTheSame) {
  const JobAuthority again = JobAuthority::from_pem(authority_.to_pem(), token_, "job");
  EXPECT_EQ(again.to_pem(), authority_.to_pem());
  EXPECT_EQ(again.roots_pem(), authority_.roots_pem());
  EXPECT_EQ(again.issued(client("host-1")), "host-1");
}

TEST_F(JobCredentials, AStoredAuthorityOfAnotherJobOrTokenIsRefused) {
  EXPECT_THROW(JobAuthority::from_pem(authority_.to_pem(), make_job_key(), "job"), ProtocolError);
  EXPECT_THROW(JobAuthority::from_pem(authority_.to_pem(), token_, "other job"), ProtocolError);
}

TEST_F(JobCredentials, AStoredAuthorityMixedFromTwoIsRefused) {
  const std::string end = "-----END PRIVATE KEY-----\n";
  const std::string one = authority_.to_pem(), two = JobAuthority::make(token_, "job").to_pem();
  EXPECT_THROW(JobAuthority::from_pem(one.substr(0, one.find(end)) + two.substr(two.find(end)), token_, "job"),
               ProtocolError);
}

TEST_F(JobCredentials, AStoredAuthorityWithAnotherPrivateNumberIsRefused) {
  std::string stored = authority_.to_pem();
  char& letter = stored[80];  // the number begins at the byte 36 of the key, and the key's text at the letter 28
  letter = letter == 'A' ? 'B' : 'A';
  EXPECT_THROW(JobAuthority::from_pem(stored, token_, "job"), ProtocolError);
}

// Each change of a character is refused, or is one that base64 ignores: then the whole text still has its meaning.
TEST_F(JobCredentials, ChangedTextsAreRefused) {
  std::mt19937_64 random{7};
  const std::string request = make_request().request_pem, stored = authority_.to_pem(), certificate = client("host-1");
  const auto changed = [&](std::string text) {
    char& letter = text[random() % text.size()];
    letter = static_cast<char>(letter ^ (1 << random() % 8));
    return text;
  };
  for (int i = 0; i < 300; ++i) {
    EXPECT_THAT(authority_.issued(changed(certificate)), testing::AnyOf(std::nullopt, std::optional("host-1")));
    try {
      EXPECT_EQ(authority_.issued(authority_.sign(changed(request), "host-2")), "host-2");
    } catch (const ProtocolError&) {
    }
    try {
      const JobAuthority again = JobAuthority::from_pem(changed(stored), token_, "job");
      EXPECT_EQ(again.roots_pem(), authority_.roots_pem());
    } catch (const ProtocolError&) {
    }
  }
}

TEST_F(JobCredentials, CertificatesSayWhatTheyAreFor) {
  const std::string leaf = text_of_certificate(client("host-1"));
  for (const char* part : {"CA:FALSE", "Digital Signature", "TLS Web Client Authentication", "CN=host-1"}) {
    EXPECT_THAT(leaf, HasSubstr(part));
  }
  const Credentials server = authority_.server();
  const std::string first = first_certificate(server.certificate_pem);
  const std::string text = text_of_certificate(first);
  for (const char* part : {"CA:FALSE", "TLS Web Server Authentication", "DNS:horo-rendezvous"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const std::string cross = text_of_certificate(server.certificate_pem.substr(first.size()));
  EXPECT_THAT(cross, HasSubstr("CA:TRUE, pathlen:0"));
  EXPECT_THAT(cross, HasSubstr("Certificate Sign"));
  EXPECT_THAT(text_of_certificate(enrolment_credentials(token_, "job").roots_pem), HasSubstr("CA:TRUE, pathlen:1"));
}

TEST_F(JobCredentials, EachPrivateKeyIsANewOne) {
  EXPECT_NE(make_request().key_pem, make_request().key_pem);
  EXPECT_NE(authority_.server().key_pem, authority_.server().key_pem);
  EXPECT_NE(enrolment_credentials(token_, "job").key_pem, enrolment_credentials(token_, "job").key_pem);
}

TEST_F(JobCredentials, ACleansedSecretIsEmpty) {
  std::string secret = make_request().key_pem;
  cleanse(secret);
  EXPECT_EQ(secret, "");
}

}  // namespace
}  // namespace horo
