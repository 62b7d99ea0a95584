// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/api_error.h"

#include <gtest/gtest.h>

#include <string>

namespace loci {
namespace {

TEST(ApiError, OfTheStoreTellsClientsNothingOfItsPlace) {
  const std::string said = "connection to server at \"10.0.0.7\", port 5432 failed: role \"loci\"";
  for (const StatusCode code : {StatusCode::kUnavailable, StatusCode::kDataLoss, StatusCode::kInternal}) {
    const ApiError error = store_error(Status(code, said));
    EXPECT_EQ(error.http_status, api_error(Status(code, said)).http_status);
    EXPECT_EQ(error.message.find("10.0.0.7"), std::string::npos) << error.message;
    EXPECT_EQ(error.operator_message, said);
    for (const ErrorStyle style : {ErrorStyle::kOpenAi, ErrorStyle::kAnthropic})
      EXPECT_EQ(to_json(error, style).find("5432"), std::string::npos);
  }
  const ApiError error = store_error(invalid_argument("expected an item of this tenant", "input"));
  EXPECT_EQ(error.message, "input: expected an item of this tenant");
  EXPECT_EQ(error.operator_message, "");
}

TEST(ApiError, A503HasItsCodeInEitherStyle) {
  const ApiError error = stopping_error();
  for (const ErrorStyle style : {ErrorStyle::kOpenAi, ErrorStyle::kAnthropic})
    EXPECT_EQ(code_of_error(to_json(error, style)), error_codes::kDraining) << to_json(error, style);
  for (const char* body : {"", "[]", "{}", R"({"error":7})", R"({"error":{"details":7}})",
                           R"({"error":{"code":null}})", R"({"error":{"details":{"error_code":7}}})"})
    EXPECT_EQ(code_of_error(body), "");
}

}  // namespace
}  // namespace loci
