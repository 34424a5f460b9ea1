from typing import Literal

EnvelopeMetaLang = Literal['dotnet', 'go', 'java', 'node', 'php', 'python']

ENVELOPE_META_LANG_VALUES: set[EnvelopeMetaLang] = { 'dotnet', 'go', 'java', 'node', 'php', 'python',  }

def check_envelope_meta_lang(value: str) -> EnvelopeMetaLang:
    if value in ENVELOPE_META_LANG_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {ENVELOPE_META_LANG_VALUES!r}")
