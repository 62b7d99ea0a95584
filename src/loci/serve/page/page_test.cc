// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/page/page.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace loci {
namespace {

std::string header_of(const HttpResponse& response, std::string_view name) {
  for (const auto& [one, value] : response.headers) {
    if (one == name) return value;
  }
  return {};
}

TEST(Page, IsAtTheRoot) {
  const auto page = page_response("/", {});
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->content_type, "text/html; charset=utf-8");
  EXPECT_TRUE(page->body.starts_with("<!doctype html>"));
  EXPECT_NE(header_of(*page, "Content-Security-Policy").find("default-src 'none'"), std::string::npos);
}

// Whatever a file names of the page is there, so that a file which was renamed is found here.
TEST(Page, WhatItsFilesNameIsThere) {
  std::set<std::string> named = {"/page/index.html"};
  for (const PageFile& file : page_files()) {
    for (const std::string mark : {"\"/page/", "\"./"}) {
      for (std::size_t at = file.content.find(mark); at != std::string_view::npos;
           at = file.content.find(mark, at + 1)) {
        const std::size_t from = at + mark.size();
        named.insert("/page/" + std::string(file.content.substr(from, file.content.find('"', from) - from)));
      }
    }
  }
  EXPECT_GE(named.size(), 10u);
  for (const std::string& path : named) EXPECT_TRUE(page_response(path, {})) << path;
  EXPECT_EQ(named.size(), page_files().size()) << "a file that none of the others names";
}

TEST(Page, HasNoOtherFiles) {
  for (const char* path : {"/page/", "/page/none.js", "/page/markdown_test.js", "/page/../index.html",
                           "/index.html", "/v1/models"})
    EXPECT_FALSE(page_response(path, {})) << path;
  EXPECT_FALSE(is_page_path("/pages"));
}

TEST(Page, IsNotSentAgain) {
  HttpRequest request;
  request.headers = {{"If-None-Match", header_of(*page_response("/page/app.js", {}), "ETag")}};
  const auto again = page_response("/page/app.js", request);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->status, 304);
  EXPECT_EQ(again->body, "");
  EXPECT_EQ(page_response("/page/style.css", request)->status, 200) << "another file";
}

// What the policy forbids would not run: scripts and styles in the markup.
TEST(Page, KeepsItsOwnPolicy) {
  const std::string body = page_response("/", {})->body;
  for (const char* part : {"style=\"", "onclick=", "onload=", "javascript:", "<style", "http://", "https://"})
    EXPECT_EQ(body.find(part), std::string::npos) << part;
  for (const PageFile& file : page_files()) {
    for (const char* part : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("})
      EXPECT_EQ(file.content.find(part), std::string_view::npos) << file.name << " " << part;
  }
}

}  // namespace
}  // namespace loci
