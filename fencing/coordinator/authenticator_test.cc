#include "fencing/coordinator/authenticator.h"

#include <catch2/catch.hpp>

#include "absl/strings/escaping.h"
#include "fencing/coordinator/kube_token_reviewer.h"
#include "fencing/coordinator/testing/static_token_reviewer.h"

namespace lunkeeper {
namespace {

struct Fixture {
  StaticTokenReviewer reviewer;
  Authenticator authenticator{reviewer, {kTestAudience, kTestAccount}, /*most_remembered=*/3};

  std::string Why(const std::string& token) {
    const absl::Status status = authenticator.Authenticate(token).status();
    REQUIRE(absl::IsUnauthenticated(status));
    return std::string(status.message());
  }
};

std::string Jwt(const std::string& payload) {
  return "e30." + absl::WebSafeBase64Escape(payload) + ".c2lnbmF0dXJl";
}

}  // namespace

TEST_CASE("a good token says which machine calls, and is reviewed once") {
  Fixture f;
  f.reviewer.AddNode("token", "node-1");
  CHECK(f.authenticator.Authenticate("token")->node == "node-1");
  f.reviewer.down = true;
  CHECK(f.authenticator.Authenticate("token")->node == "node-1");
  CHECK(f.reviewer.reviews == 1);
}

TEST_CASE("a token is refused with what is wrong, and is not quoted") {
  Fixture f;
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
  Fixture f;
  f.reviewer.AddNode("token", "node-1");
  f.reviewer.down = true;
  CHECK(absl::IsUnavailable(f.authenticator.Authenticate("token").status()));
  f.reviewer.down = false;
  CHECK(f.authenticator.Authenticate("token").ok());
}

TEST_CASE("a remembered token is good until it expires, and no longer") {
  Fixture f;
  f.reviewer.AddNode("token", "node-1", absl::Milliseconds(200));
  REQUIRE(f.authenticator.Authenticate("token").ok());
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (f.authenticator.Authenticate("token").ok() && absl::Now() < deadline) {
  }
  CHECK_THAT(f.Why("token"), Catch::Contains("expired"));
}

TEST_CASE("no more tokens are remembered than was said; the first to expire is reviewed again") {
  Fixture f;
  for (int i = 1; i <= 4; ++i) {
    const std::string token = absl::StrCat("token-", i);
    f.reviewer.AddNode(token, "node-1", absl::Hours(i));
    REQUIRE(f.authenticator.Authenticate(token).ok());
  }
  f.reviewer.down = true;
  CHECK_FALSE(f.authenticator.Authenticate("token-1").ok());
  for (int i = 2; i <= 4; ++i) CHECK(f.authenticator.Authenticate(absl::StrCat("token-", i)).ok());
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
