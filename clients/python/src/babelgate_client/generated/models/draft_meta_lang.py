from typing import Literal

DraftMetaLang = Literal['dotnet', 'go', 'java', 'node', 'php', 'python']

DRAFT_META_LANG_VALUES: set[DraftMetaLang] = { 'dotnet', 'go', 'java', 'node', 'php', 'python',  }

def check_draft_meta_lang(value: str) -> DraftMetaLang:
    if value in DRAFT_META_LANG_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {DRAFT_META_LANG_VALUES!r}")
