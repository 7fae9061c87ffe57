#include "fencing/coordinator/authenticator.h"

#include <catch2/catch.hpp>
#include <optional>

#include "absl/strings/escaping.h"
#include "base/testing/test_host.h"
#include "base/testing/wall_clock.h"
#include "fencing/coordinator/kube_token_reviewer.h"
#include "fencing/coordinator/testing/static_token_reviewer.h"

namespace lunkeeper {
namespace {

struct AuthenticatorFixture {
  explicit AuthenticatorFixture(const AuthenticatorLimits& limits = {.most_remembered = 3})
      : authenticator(reviewer, {kTestAudience, kTestAccount}, limits) {}

  StaticTokenReviewer reviewer;
  Authenticator authenticator;

  absl::StatusOr<Authenticator::Caller> Authenticate(const std::string& token) {
    return authenticator.Authenticate(token, "ipv4:10.0.0.1");
  }
  std::string Why(const std::string& token) {
    const absl::Status status = Authenticate(token).status();
    REQUIRE(absl::IsUnauthenticated(status));
    return std::string(status.message());
  }
};

std::string Jwt(const std::string& payload) {
  return "e30." + absl::WebSafeBase64Escape(payload) + ".c2lnbmF0dXJl";
}

}  // namespace

TEST_CASE("a good token says which machine calls, and is reviewed once") {
  AuthenticatorFixture f;
  f.reviewer.AddNode("token", "node-1");
  CHECK(f.Authenticate("token")->node == "node-1");
  f.reviewer.down = true;
  CHECK(f.Authenticate("token")->node == "node-1");
  CHECK(f.reviewer.reviews == 1);
}

TEST_CASE("a token is refused with what is wrong, and is not quoted") {
  AuthenticatorFixture f;
  f.reviewer.Add("other-audience", {kTestAccount, "node-1", absl::InfiniteFuture()}, "vault");
  f.reviewer.Add("other-account", {"system:serviceaccount:shop:web", "node-1", absl::InfiniteFuture()});
  f.reviewer.Add("no-node", {kTestAccount, "", absl::InfiniteFuture()});
  f.reviewer.AddNode("expired", "node-1", -absl::Seconds(1));
  CHECK_THAT(f.Why(""), Catch::Contains("authorization"));
  CHECK_THAT(f.Why("unknown-secret"), Catch::Contains("unknown") && !Catch::Contains("unknown-secret"));
  CHECK_THAT(f.Why("other-audience"), Catch::Contains("csi.lunkeeper.io"));
  CHECK_THAT(f.Why("other-account"), Catch::Contains("system:serviceaccount:shop:web"));
  CHECK_THAT(f.Why("no-node"), Catch::Contains("names no node"));
  CHECK_THAT(f.Why("expired"), Catch::Contains("expired"));
  CHECK_THAT(f.Why(std::string(20'000, 'x')), Catch::Contains("longer"));
}

TEST_CASE("a token that cannot be reviewed is neither good nor bad") {
  AuthenticatorFixture f;
  f.reviewer.AddNode("token", "node-1");
  f.reviewer.down = true;
  CHECK(absl::IsUnavailable(f.Authenticate("token").status()));
  f.reviewer.down = false;
  CHECK(f.Authenticate("token").ok());
}

TEST_CASE("a remembered token is good until it expires, and no longer") {
  AuthenticatorFixture f;
  f.reviewer.AddNode("token", "node-1", absl::Milliseconds(200));
  REQUIRE(f.Authenticate("token").ok());
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (f.Authenticate("token").ok() && absl::Now() < deadline) {
  }
  CHECK_THAT(f.Why("token"), Catch::Contains("expired"));
}

TEST_CASE("no more tokens are remembered than was said; the first to expire is reviewed again") {
  AuthenticatorFixture f;
  for (int i = 1; i <= 4; ++i) {
    const std::string token = absl::StrCat("token-", i);
    f.reviewer.AddNode(token, "node-1", absl::Hours(i));
    REQUIRE(f.Authenticate(token).ok());
  }
  f.reviewer.down = true;
  CHECK_FALSE(f.Authenticate("token-1").ok());
  for (int i = 2; i <= 4; ++i) CHECK(f.Authenticate(absl::StrCat("token-", i)).ok());
}

TEST_CASE("a machine's many tokens, which end late, push out its own and no other's") {
  AuthenticatorFixture f(AuthenticatorLimits{.most_remembered = 6, .most_of_machine = 3});
  f.reviewer.AddNode("honest", "node-1");
  REQUIRE(f.Authenticate("honest").ok());
  for (int i = 0; i < 20; ++i) {
    const std::string token = absl::StrCat("hostile-", i);
    f.reviewer.AddNode(token, "node-2", absl::Hours(24 + i));
    REQUIRE(f.Authenticate(token).ok());
  }
  CHECK(f.authenticator.RecallCaller("honest").has_value());
  CHECK_FALSE(f.authenticator.RecallCaller("hostile-16").has_value());
  for (int i = 17; i < 20; ++i) CHECK(f.authenticator.RecallCaller(absl::StrCat("hostile-", i)).has_value());
  f.authenticator.ForgetMachine("node-2");
  CHECK_FALSE(f.authenticator.RecallCaller("hostile-19").has_value());
  CHECK(f.authenticator.RecallCaller("honest").has_value());
}

TEST_CASE("a refused token is remembered for a while, and costs no review") {
  AuthenticatorFixture f(AuthenticatorLimits{.most_refused = 2, .refused_for = absl::Milliseconds(300)});
  for (int i = 0; i < 100; ++i) CHECK_THAT(f.Why("unknown"), Catch::Contains("unknown"));
  CHECK(f.reviewer.reviews == 1);
  // It was made known meanwhile.
  f.reviewer.AddNode("unknown", "node-1");
  CHECK(testing::Eventually([&] { return f.Authenticate("unknown").ok(); }));
  // The memory is small: the oldest one is reviewed again.
  for (const char* token : {"x", "y", "z"}) f.Why(token);
  const int before = f.reviewer.reviews;
  f.Why("z");
  f.Why("y");
  CHECK(f.reviewer.reviews == before);
  f.Why("x");
  CHECK(f.reviewer.reviews == before + 1);
}

TEST_CASE("an address has few reviews at a time, which keeps no other address waiting") {
  AuthenticatorFixture f(AuthenticatorLimits{.reviews_per_address = 2});
  f.reviewer.AddNode("good", "node-1");
  auto first = f.authenticator.TakeReviewPlace("ipv4:10.0.0.1");
  const auto second = f.authenticator.TakeReviewPlace("ipv4:10.0.0.1");
  REQUIRE(second.ok());
  CHECK(absl::IsResourceExhausted(f.Authenticate("good").status()));
  CHECK(f.reviewer.reviews == 0);
  CHECK(f.authenticator.Authenticate("good", "ipv4:10.0.0.2").ok());
  // A token that is known needs no review.
  CHECK(f.Authenticate("good").ok());
  first->reset();
  CHECK_FALSE(absl::IsResourceExhausted(f.Authenticate("other").status()));
}

TEST_CASE("a token that went bad is forgotten after its next review, in the background") {
  AuthenticatorFixture f(AuthenticatorLimits{.review_again = absl::ZeroDuration()});
  f.reviewer.AddNode("token", "node-1");
  REQUIRE(f.Authenticate("token").ok());
  f.reviewer.Remove("token");
  CHECK(testing::Eventually([&] { return !f.Authenticate("token").ok(); }));
}

TEST_CASE("a token that went bad is noticed in time by a controller whose clock was set back") {
  AuthenticatorFixture f(AuthenticatorLimits{.review_again = absl::Milliseconds(100)});
  std::optional<testing::WallClockAhead> ahead(absl::Hours(1));
  testing::AwaitAbseilsClock();
  f.reviewer.AddNode("token", "node-1", absl::Hours(2));
  REQUIRE(f.Authenticate("token").ok());
  ahead.reset();
  testing::AwaitAbseilsClock();
  f.reviewer.Remove("token");
  CHECK(testing::Eventually([&] { return !f.Authenticate("token").ok(); }));
}

TEST_CASE("a token that was refused by a clock which was ahead is good soon after that is set right") {
  AuthenticatorFixture f(AuthenticatorLimits{.refused_for = absl::Milliseconds(100)});
  f.reviewer.AddNode("token", "node-1");
  std::optional<testing::WallClockAhead> ahead(absl::Hours(24));
  testing::AwaitAbseilsClock();
  CHECK_THAT(f.Why("token"), Catch::Contains("expired"));
  ahead.reset();
  testing::AwaitAbseilsClock();
  CHECK(testing::Eventually([&] { return f.Authenticate("token").ok(); }));
}

TEST_CASE("a good token outlives an API server that does not answer, and its return") {
  AuthenticatorFixture f(AuthenticatorLimits{.review_again = absl::ZeroDuration()});
  f.reviewer.AddNode("token", "node-1");
  REQUIRE(f.Authenticate("token").ok());
  f.reviewer.down = true;
  REQUIRE(f.Authenticate("token").ok());
  REQUIRE(testing::Eventually([&] { return f.reviewer.reviews == 2; }));
  CHECK(f.Authenticate("token").ok());
  f.reviewer.down = false;
  CHECK(f.Authenticate("token").ok());
}

TEST_CASE("a machine's tokens are reviewed anew once it is forgotten, and another's are not") {
  AuthenticatorFixture f;
  f.reviewer.AddNode("a", "node-1");
  f.reviewer.AddNode("b", "node-2");
  REQUIRE(f.Authenticate("a").ok());
  REQUIRE(f.Authenticate("b").ok());
  f.reviewer.Remove("a");
  f.reviewer.Remove("b");
  f.authenticator.ForgetMachine("node-1");
  CHECK_FALSE(f.authenticator.RecallCaller("a").has_value());
  CHECK_THAT(f.Why("a"), Catch::Contains("unknown"));
  CHECK(f.Authenticate("b").ok());
}

TEST_CASE("a JSON web token says when it ends") {
  CHECK(*ExpiryOf(Jwt(R"({"exp":1700000000})")) == absl::FromUnixSeconds(1'700'000'000));
  for (const std::string& wrong :
       {std::string(), std::string("plain"), std::string("a.b"), std::string("e30.!.x"), Jwt("{}"),
        Jwt(R"({"exp":"soon"})"), Jwt("[1]"), Jwt("{")}) {
    CAPTURE(wrong);
    CHECK(absl::IsUnauthenticated(ExpiryOf(wrong).status()));
  }
}

}  // namespace lunkeeper
