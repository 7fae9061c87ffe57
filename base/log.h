#pragma once
// Structured logs on standard error, one line a record:
//   LogInfo("array", "grant stored", {{"volume", volume.value()}, {"node", node.value()}});
// prints  2026-11-20T22:10:05.123Z INFO array: grant stored volume=v1 node=a.7f  (or the same as a JSON
// object). Thread-safe; never fails. Where nobody reads what is written, a record waits for a moment and is
// then left out: who logs while it holds a lock must not stop. How many were left out is logged as soon as
// there is room again. Secrets never get here: a type that holds one (ChapCredentials) has no text form.

#include <string>
#include <vector>

namespace lunkeeper {

struct Field {
  const char* key;
  std::string value;
};
using Fields = std::vector<Field>;

enum class LogFormat { kText, kJson };

// Before the first record of main(); without it, records of level `info` and above are printed as text.
// `level`: debug, info, warn or error; anything else is taken as info.
void SetUpLogging(const std::string& level, LogFormat format);

void LogDebug(const char* component, const std::string& message, const Fields& fields = {});
void LogInfo(const char* component, const std::string& message, const Fields& fields = {});
void LogWarn(const char* component, const std::string& message, const Fields& fields = {});
void LogError(const char* component, const std::string& message, const Fields& fields = {});

}  // namespace lunkeeper
