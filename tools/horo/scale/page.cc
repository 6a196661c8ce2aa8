#include "tools/horo/scale/page.h"

#include "horo/base/check.h"

namespace horo::tools {
namespace {

constexpr std::string_view kPlace = "SCALE_DATA_HERE";

// JSON has "<" in strings alone. Without one, nothing in it is markup, whatever a name is.
std::string without_markup(const std::string& json) {
  std::string text;
  for (const char letter : json) {
    if (letter == '<') {
      text += "\\u003c";
    } else {
      text += letter;
    }
  }
  return text;
}

}  // namespace

std::string page_of(const ScaleJson& json) {
  ScaleJson shown = json;
  shown.erase("runs");
  std::string page(page_template());
  const std::size_t place = page.find(kPlace);
  HORO_CHECK(place != std::string::npos);
  return page.replace(place, kPlace.size(), without_markup(shown.dump(-1, ' ', true)));
}

}  // namespace horo::tools
