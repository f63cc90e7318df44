# SPDX-License-Identifier: MIT
# What the chat page renders answers with: each file by its hash, with its licence. scripts/page_libraries fetches them
# into TINFER_PAGE_LIBRARIES. Where one is missing or another version, `page_libraries_found` is off, and the page shows
# plain text.
set(page_library_files
    marked/lib/marked.umd.js bb95d4c15f1289f78486eaacebf3bb18688475ed58a040ef762ed49337090542
    marked/LICENSE 8e3a3f82f59a60958f56ca08f445647c32a4733dc7ca6c2c46f6eb898471ab9c
    dompurify/dist/purify.min.js f69a46022ab1f53e969c8ebbca98172c8995785a9b3be72ea4a12d25b1a1bf67
    dompurify/LICENSE cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30
    @highlightjs/cdn-assets/highlight.min.js 8ab71eb09c51f501e5e25157d9cff100e46cc29bcbfc744d0b746d451fca7f53
    @highlightjs/cdn-assets/LICENSE 6c081431591d9df696c82dc598fe1423765b8a299b200ed00b281afd0f64c490
    katex/dist/katex.min.js fa140498b8cfc8302cbe5e7cb1bdbc1f952bc38b3fa258ede09e73edbf9a74bc
    katex/LICENSE 766ccc1f306c885aa45542a9846bbd0a505b27a0374f146778171c2254ce18e3)

# Sets `page_libraries_found` and `page_library_paths`.
macro(find_page_libraries folder)
    set(page_libraries_found ON)
    set(page_library_paths "")
    set(page_library_rest ${page_library_files})
    while(page_library_rest)
        list(POP_FRONT page_library_rest file hash)
        set(path "${folder}/node_modules/${file}")
        set(found "")
        if(EXISTS "${path}")
            file(SHA256 "${path}" found)
        endif()
        if(NOT found STREQUAL hash)
            set(page_libraries_found OFF)
        endif()
        list(APPEND page_library_paths "${path}")
    endwhile()
endmacro()
