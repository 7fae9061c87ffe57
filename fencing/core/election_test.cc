// Who holds the lease, where answers to its writes are lost.
#include "fencing/core/election.h"

#include <catch2/catch.hpp>

namespace lunkeeper::fencing {
namespace {

// An API server that stores each write, and whose answer to this replica comes too late or not at all.
struct Unanswered {
  void Write() {
    election.NoteLease({holder, Version(std::to_string(version)), now}, now);
    const auto write = election.DueWrite(now, false);
    if (!write) return;
    if (write->expected == Version(std::to_string(version))) holder = "me", ++version;
    sent.push_back(*write);
  }
  // Of the last write, and it is given up.
  void LoseAnswers() {
    if (!sent.empty() && now - sent.back().sent >= 3_s)
      election.NoteAnswer(sent.back(), Outcome::kFailed, {}, now);
  }
  void Pass(Span time) {
    for (const Instant end = now + time; now < end; now += 250_ms) {
      LoseAnswers();
      Write();
    }
  }

  Settings settings;
  Election election{settings, "me"};
  Instant now{100_s};
  std::string holder;
  int version = 1;
  std::vector<WriteLease> sent;
};

// A leader whose lease is of version 2, and which renews it just now, a second later.
struct Renewing {
  Renewing() {
    election.NoteLease({"", Version("1"), now}, now);
    election.NoteAnswer(election.DueWrite(now, false).value(), Outcome::kOk, Version("2"), now);
    now = now + 1_s;
    first = election.DueWrite(now, false).value();
    REQUIRE(first.expected == Version("2"));
    CHECK_FALSE(election.DueWrite(now + 999_ms, false));
    now = now + 1_s;
    second = election.DueWrite(now, false).value();
  }
  Settings settings;
  Election election{settings, "me"};
  Instant now{100_s};
  WriteLease first, second;  // the first is not answered
};

}  // namespace

TEST_CASE("a renewal that is not answered costs no leadership: another one is made beside it") {
  Renewing leader;
  CHECK(leader.second.expected == Version("2"));
  leader.election.NoteAnswer(leader.second, Outcome::kOk, Version("3"), leader.now);
  CHECK(leader.election.HoldsLease(leader.now + 2999_ms));
  const auto late = GENERATE(Outcome::kFailed, Outcome::kConflict);
  leader.election.NoteAnswer(leader.first, late, {}, leader.now + 2_s);
  CHECK(leader.election.HoldsLease(leader.now + 2999_ms));
}

TEST_CASE("a renewal that was only slow makes the one beside it fail, and costs no leadership either") {
  Renewing leader;
  const bool conflict_first = GENERATE(true, false);
  if (conflict_first) leader.election.NoteAnswer(leader.second, Outcome::kConflict, {}, leader.now);
  leader.election.NoteAnswer(leader.first, Outcome::kOk, Version("3"), leader.now);
  if (!conflict_first) leader.election.NoteAnswer(leader.second, Outcome::kConflict, {}, leader.now);
  CHECK(leader.election.HoldsLease(leader.first.sent + 2999_ms));
  CHECK(leader.election.DueWrite(leader.now + 500_ms, false).value().expected == Version("3"));
}

TEST_CASE("two renewals that are stored and answered in the wrong order leave the newer version") {
  Renewing leader;
  leader.election.NoteLease({"me", Version("3"), leader.now}, leader.now);
  leader.now = leader.now + 500_ms;
  leader.election.NoteLease({"me", Version("4"), leader.now}, leader.now);
  leader.election.NoteAnswer(leader.first, Outcome::kOk, Version("3"), leader.now);
  CHECK(leader.election.DueWrite(leader.now + 1_s, false).value().expected == Version("4"));
}

TEST_CASE("a late answer to a renewal gives no leadership back that another one has taken") {
  Renewing leader;
  leader.election.NoteLease({"them", Version("4"), leader.now}, leader.now);
  leader.election.NoteAnswer(leader.second, Outcome::kOk, Version("3"), leader.now);
  CHECK_FALSE(leader.election.HoldsLease(leader.now));
  CHECK(leader.election.holder() == "them");
}

TEST_CASE("a write of the lease that was stored and not answered gives no leadership, and is made again") {
  Unanswered replica;
  replica.Write();
  replica.Pass(4_s);
  CHECK_FALSE(replica.election.HoldsLease(replica.now));
  REQUIRE(replica.sent.size() == 2);
  replica.election.NoteAnswer(replica.sent.back(), Outcome::kOk, Version("3"), replica.now);
  CHECK(replica.election.HoldsLease(replica.now));
}

TEST_CASE("a replica that defers takes a free lease when the others have had the time of one for it") {
  const std::string holder = GENERATE("", "them");
  Settings settings;
  Election election(settings, "me");
  const Instant begin{100_s}, free = begin + (holder.empty() ? Span() : settings.lease);
  election.NoteLease({holder, Version("1"), begin}, begin);
  CHECK_FALSE(election.DueWrite(free + settings.lease - 1_ms, true));
  CHECK(election.DueWrite(free + settings.lease, true));
}

// Else its lease never runs out, and nobody leads for as long as that lasts.
TEST_CASE("a replica whose writes of the lease are stored and never answered leaves it to the others") {
  Unanswered replica;
  Instant changed_at = replica.now;
  Span longest;
  for (int version = 0; replica.now < Instant(160_s); replica.Pass(250_ms)) {
    if (replica.version != version) changed_at = replica.now;
    version = replica.version;
    longest = std::max(longest, replica.now - changed_at);
  }
  CHECK(longest > replica.settings.lease);
  CHECK(replica.sent.size() > 4);  // where there is no other, it goes on
}

}  // namespace lunkeeper::fencing
