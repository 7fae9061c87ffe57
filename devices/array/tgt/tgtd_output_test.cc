#include "devices/array/tgt/tgtd_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <vector>

#include "devices/array/tgt/testing/array_fixture.h"

namespace lunkeeper::testing {
namespace {

struct Relay {
  TgtdOutput::Tell Tell() {
    return [this](const std::string& line) { lines.push_back(line); };
  }
  // As tgtd has it open.
  void Say(const std::string& text) const {
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_NONBLOCK));
    [[maybe_unused]] const ssize_t written = ::write(fd.get(), text.data(), text.size());
  }
  TempDir directory;
  const std::string path = directory / "fifo";
  std::vector<std::string> lines;
};

TEST_CASE_METHOD(Relay, "each line is told once, when it has ended") {
  TgtdOutput output(path, Tell());
  CHECK(output.path() == path);
  output.RelayLines();
  CHECK(lines.empty());
  Say("tgtd: one\ntgtd: tw");
  output.RelayLines();
  CHECK(lines == std::vector<std::string>{"tgtd: one"});
  Say("o \033[1m\n");
  output.RelayLines();
  output.RelayLines();
  CHECK(lines == std::vector<std::string>{"tgtd: one", "tgtd: two ?[1m"});
}

TEST_CASE_METHOD(Relay, "what is said while nobody listens is told later, and the sayer waits for nobody") {
  auto output = std::make_unique<TgtdOutput>(path, Tell());
  const UniqueFd tgtd(::open(path.c_str(), O_RDWR | O_NONBLOCK));
  output.reset();
  const std::string line(99, 'x');
  for (int i = 0; i < 2000; ++i) [[maybe_unused]]
    const ssize_t written = ::write(tgtd.get(), (line + "\n").data(), 100);
  TgtdOutput again(path, Tell());
  again.RelayLines();
  REQUIRE(lines.size() == 51);
  CHECK(lines.front() == line);
  CHECK_THAT(lines.back(), Catch::Contains("more lines"));
}

TEST_CASE_METHOD(Relay, "refused logins are counted, also those of which no line is told") {
  TgtdOutput output(path, Tell());
  for (int i = 0; i < 60; ++i)
    Say("tgtd: chap_initiator_auth_check_response(463) CHAP initiator auth.: authentication of iqn.x failed "
        "(wrong secret!?)\n");
  Say("tgtd: chap_initiator_auth_create_challenge(1) No valid user/pass combination for initiator iqn.x "
      "found\ntgtd: another line\n");
  output.RelayLines();
  CHECK(lines.size() == 51);
  CHECK(output.refused_logins() == 61);
}

TEST_CASE("a login with a wrong secret, and one with another account, are counted") {
  ClusterFixture fixture;
  const auto grant = fixture.Acquire(fixture.Make("v"), NodeId("node-a.1"));
  REQUIRE(grant.ok());
  Connection wrong = grant->connection;
  wrong.chap.secret.front() ^= 1;
  CHECK_FALSE(PlainInitiator::Login(wrong).ok());
  wrong = grant->connection;
  wrong.chap.user += "x";
  CHECK_FALSE(PlainInitiator::Login(wrong).ok());
  const auto counted = [&] { return fixture.ArrayFixture::array->MeasureGrants()->refused_logins; };
  CHECK(Eventually([&] { return counted() >= 2; }));
  CHECK(counted() == 2);
  REQUIRE(PlainInitiator::Login(grant->connection).ok());
}

TEST_CASE_METHOD(Relay, "without a FIFO tgtd's words are lost, and nothing else") {
  std::ofstream(path) << "a file";
  TgtdOutput output(path, Tell());
  CHECK(output.path() == "/dev/null");
  output.RelayLines();
  CHECK(TgtdOutput("", Tell()).path() == "/dev/null");
  CHECK(lines.empty());
}

TEST_CASE("tgtd speaks to the FIFO, also after the agent's restart") {
  ArrayFixture fixture;
  REQUIRE(fixture.Open() == absl::OkStatus());
  const pid_t tgtd = TgtdProcess(fixture.options.control_port);
  for (const char* number : {"1", "2"}) {
    const std::string link = "/proc/" + std::to_string(tgtd) + "/fd/" + number;
    CHECK(std::filesystem::read_symlink(link) == fixture.options.tgtd_output_path);
  }
  REQUIRE(fixture.Open() == absl::OkStatus());
  CHECK(TgtdProcess(fixture.options.control_port) == tgtd);
}

}  // namespace
}  // namespace lunkeeper::testing
