// scale.html: one file with its pictures, style and script, which asks for nothing from a network.
#pragma once

#include <string>
#include <string_view>

#include "tools/horo/scale/scale_document.h"

namespace horo::tools {

// The page of a document, without its runs. No text of the document can end the element that holds it.
std::string page_of(const ScaleJson& json);

// The page without data: page/, joined when horo is built.
std::string_view page_template();

}  // namespace horo::tools
