// Records are formatted here, in the calling thread, and handed to spdlog as finished lines: its own patterns
// cannot quote values. The sink has a lock, so lines of two threads never mix.
#include "base/log.h"

#include <spdlog/fmt/chrono.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>

namespace lunkeeper {
namespace {

// Set once by main(), but a test may set it while threads log.
std::atomic<LogFormat> format{LogFormat::kText};

// Made on first use, so that a static constructor can log. Flushed at each record: a process that is killed
// leaves a complete log.
spdlog::logger& Logger() {
  static const auto logger = [] {
    auto made =
        std::make_shared<spdlog::logger>("lunkeeper", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->flush_on(spdlog::level::trace);
    made->set_formatter(std::make_unique<spdlog::pattern_formatter>("%v", spdlog::pattern_time_type::utc));
    return made;
  }();
  return *logger;
}

std::string UtcNow() {
  // Always UTC with milliseconds, so that logs of several machines can be merged by sorting.
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", seconds, (now - seconds).count());
}

// A value of a text record: quoted if a reader or a log collector could not see its end. Bytes that are no
// UTF-8 become U+FFFD, since names from outside must never make logging throw.
std::string QuoteValue(const std::string& value) {
  if (!value.empty() && value.find_first_of(" \"=\n\r\t") == std::string::npos) return value;
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ToTextLine(const char* level, const char* component, const std::string& message,
                       const Fields& fields) {
  std::string line = fmt::format("{} {} {}: {}", UtcNow(), level, component, message);
  for (const Field& field : fields) line += fmt::format(" {}={}", field.key, QuoteValue(field.value));
  return line;
}

std::string ToJsonLine(const char* level, const char* component, const std::string& message,
                       const Fields& fields) {
  // Ordered: a record is read by people, too.
  nlohmann::ordered_json record = {
      {"time", UtcNow()}, {"level", level}, {"component", component}, {"message", message}};
  for (const Field& field : fields) record[field.key] = field.value;
  return record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void WriteRecord(spdlog::level::level_enum level, const char* name, const char* component,
                 const std::string& message, const Fields& fields) {
  if (!Logger().should_log(level)) return;
  Logger().log(level, format == LogFormat::kJson ? ToJsonLine(name, component, message, fields)
                                                 : ToTextLine(name, component, message, fields));
}

}  // namespace

void SetUpLogging(const std::string& level, LogFormat log_format) {
  format = log_format;
  const auto parsed = spdlog::level::from_str(level);
  Logger().set_level(parsed == spdlog::level::off ? spdlog::level::info : parsed);
}

void LogDebug(const char* component, const std::string& message, const Fields& fields) {
  WriteRecord(spdlog::level::debug, "DEBUG", component, message, fields);
}
void LogInfo(const char* component, const std::string& message, const Fields& fields) {
  WriteRecord(spdlog::level::info, "INFO", component, message, fields);
}
void LogWarn(const char* component, const std::string& message, const Fields& fields) {
  WriteRecord(spdlog::level::warn, "WARN", component, message, fields);
}
void LogError(const char* component, const std::string& message, const Fields& fields) {
  WriteRecord(spdlog::level::err, "ERROR", component, message, fields);
}

}  // namespace lunkeeper
