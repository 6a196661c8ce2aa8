// Mutual TLS 1.3 between the rendezvous and its clients, and between all that must not meet.
#include <gtest/gtest.h>

#include "tests/elastic/service/tls.h"

namespace horo {
namespace {

Credentials enrolled_client(const JobAuthority& authority, const std::string& name) {
  const CertificateRequest request = make_request();
  return {authority.roots_pem(), authority.sign(request.request_pem, name), request.key_pem};
}

class RendezvousHandshake : public testing::Test {
 protected:
  const JobKey token_ = make_job_key();
  const JobAuthority authority_ = JobAuthority::make(token_, "job");
};

TEST_F(RendezvousHandshake, AnEnrolledClientIsKnownByItsName) {
  const TlsOutcome result = shake_hands(authority_.server(), enrolled_client(authority_, "host-1"));
  EXPECT_TRUE(result.is_done) << result.server_says << result.client_says;
  EXPECT_EQ(result.version, "TLSv1.3");
  EXPECT_EQ(authority_.issued(result.server_saw), "host-1");
}

TEST_F(RendezvousHandshake, AnEnrollingClientIsLetInAndHasNoName) {
  const TlsOutcome result = shake_hands(authority_.server(), enrolment_credentials(token_, "job"));
  EXPECT_TRUE(result.is_done) << result.server_says << result.client_says;
  EXPECT_EQ(result.version, "TLSv1.3");
  EXPECT_EQ(authority_.issued(result.server_saw), std::nullopt);
}

TEST_F(RendezvousHandshake, ARestartedRendezvousServesTheClientsOfTheOneBefore) {
  const Credentials client = enrolled_client(authority_, "host-1");
  const JobAuthority restarted = JobAuthority::from_pem(authority_.to_pem(), token_, "job");
  const TlsOutcome result = shake_hands(restarted.server(), client);
  EXPECT_TRUE(result.is_done) << result.server_says << result.client_says;
  EXPECT_EQ(restarted.issued(result.server_saw), "host-1");
  EXPECT_TRUE(shake_hands(restarted.server(), enrolment_credentials(token_, "job")).is_done);
}

TEST_F(RendezvousHandshake, AnotherTokenOrJobIsRefusedByBothSides) {
  for (const auto& [token, job] : {std::pair(make_job_key(), "job"), std::pair(token_, "other job")}) {
    Credentials client = enrolment_credentials(token, job);
    const TlsOutcome by_client = shake_hands(authority_.server(), client);
    EXPECT_FALSE(by_client.is_done);
    EXPECT_NE(by_client.client_says, "");
    client.roots_pem = enrolment_credentials(token_, "job").roots_pem;
    const TlsOutcome by_server = shake_hands(authority_.server(), client);
    EXPECT_FALSE(by_server.is_done);
    EXPECT_NE(by_server.server_says, "");
  }
}

TEST_F(RendezvousHandshake, AClientOfAnotherAuthorityIsRefusedEvenWithTheSameTokenAndJob) {
  const JobAuthority other = JobAuthority::make(token_, "job");
  Credentials client = enrolled_client(other, "host-1");
  EXPECT_FALSE(shake_hands(authority_.server(), client).is_done);
  client.roots_pem = authority_.roots_pem();
  const TlsOutcome result = shake_hands(authority_.server(), client);
  EXPECT_FALSE(result.is_done);
  EXPECT_NE(result.server_says, "");
}

TEST_F(RendezvousHandshake, AClientCannotPassAsTheServer) {
  Credentials client = enrolled_client(authority_, "host-1");
  client.roots_pem = authority_.server().roots_pem;
  Credentials enrolling = enrolment_credentials(token_, "job");
  enrolling.roots_pem = authority_.server().roots_pem;
  for (const Credentials& posing : {client, enrolling}) {
    EXPECT_NE(shake_hands(posing, enrolled_client(authority_, "host-2")).client_says, "");
    EXPECT_NE(shake_hands(posing, enrolment_credentials(token_, "job")).client_says, "");
  }
}

TEST_F(RendezvousHandshake, TheServerCannotPassAsAClient) {
  Credentials posing = authority_.server();
  posing.roots_pem = authority_.roots_pem();
  const TlsOutcome result = shake_hands(authority_.server(), posing);
  EXPECT_FALSE(result.is_done);
  EXPECT_NE(result.server_says, "");
}

}  // namespace
}  // namespace horo
