#include "fencing/core/phase.h"

#include <algorithm>
#include <iterator>

namespace lunkeeper::fencing {
namespace {

struct PhaseText {
  Phase phase;
  const char* word;
  const char* sentence;
};

// In the order of the enum.
constexpr PhaseText kPhaseTexts[] = {
    {Phase::kRequested, "", "asked for"},
    {Phase::kRefused, "Refused", "refused: there is no such node"},
    {Phase::kLeaving, "Leaving", "asking its pods to leave"},
    {Phase::kReassessing, "Reassessing", "looking again"},
    {Phase::kFencing, "Fencing", "fencing"},
    {Phase::kEvacuating, "Evacuating", "deleting its pods"},
    {Phase::kReplacing, "Replacing", "waiting for the replacements"},
    {Phase::kMoved, "Moved", "moved"},
    {Phase::kAwaitingNode, "AwaitingNode", "moved; waiting for the node"},
    {Phase::kCleaning, "Cleaning", "waiting for the node to be clean"},
};

constexpr const PhaseText& TextOf(Phase phase) { return kPhaseTexts[static_cast<size_t>(phase)]; }

// The compiler shows that no row is missing or out of place.
static_assert(std::size(kPhaseTexts) == static_cast<size_t>(Phase::kCleaning) + 1);
static_assert(std::all_of(std::begin(kPhaseTexts), std::end(kPhaseTexts),
                          [](const PhaseText& text) { return &TextOf(text.phase) == &text; }));

}  // namespace

const char* ToWord(Phase phase) { return TextOf(phase).word; }

const char* ToSentence(Phase phase) { return TextOf(phase).sentence; }

Phase ParsePhase(std::string_view word) {
  const auto* found = std::find_if(std::begin(kPhaseTexts), std::end(kPhaseTexts),
                                   [&](const PhaseText& text) { return word == text.word; });
  return found == std::end(kPhaseTexts) ? Phase::kRequested : found->phase;
}

}  // namespace lunkeeper::fencing
