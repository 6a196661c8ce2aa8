#include "elastic/service/enrolment.h"

#include <gtest/gtest.h>

#include "tests/base/bytes.h"

namespace horo {
namespace {

PrivateNumber number_of(const std::string& hex) {
  const std::vector<std::byte> bytes = from_hex(hex);
  PrivateNumber number{};
  std::copy(bytes.begin(), bytes.end(), number.begin());
  return number;
}

TEST(Enrolment, ANumberIsOfTheTokenAndTheJob) {
  const JobKey token = make_job_key();
  const PrivateNumber number = enrolment_number(token, "job");
  EXPECT_EQ(enrolment_number(token, "job"), number);
  EXPECT_NE(enrolment_number(token, "joc"), number);
  EXPECT_NE(enrolment_number(token, ""), number);
  EXPECT_NE(enrolment_number(make_job_key(), "job"), number);
}

// Hosts of one job may have different versions of horo.
TEST(Enrolment, TheDerivationDoesNotChange) {
  JobKey token{};
  token[0] = std::byte{1};
  EXPECT_EQ(enrolment_number(token, "job"),
            number_of("42e766841fc35e0ba9747582da74dce30ce8191ac450ea43ef58d4381beb2242"));
  EXPECT_EQ(job_mark("job"), "horo job 5d5d0a351fa466942de809648fd31b3b");
}

TEST(Enrolment, APrivateNumberIsBetweenZeroAndTheOrderOfTheCurve) {
  const std::string order = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc6325";  // but for the last byte
  EXPECT_FALSE(is_private_number(number_of(std::string(64, '0'))));
  EXPECT_TRUE(is_private_number(number_of(std::string(62, '0') + "01")));
  EXPECT_TRUE(is_private_number(number_of(order + "50")));
  EXPECT_FALSE(is_private_number(number_of(order + "51")));
  EXPECT_FALSE(is_private_number(number_of(std::string(64, 'f'))));
}

}  // namespace
}  // namespace horo
