using System;
using System.Buffers;
using System.Collections.Generic;
using System.Text.Encodings.Web;
using System.Text.Json;

namespace Babelgate.Client
{
    /// <summary>Writes the bodies of requests, and reads those of answers.</summary>
    internal static class Json
    {
        private static readonly JsonWriterOptions Relaxed = new JsonWriterOptions
        {
            Encoder = JavaScriptEncoder.UnsafeRelaxedJsonEscaping,
        };

        // A gateway takes at most 800 levels.
        private static readonly JsonDocumentOptions Deep = new JsonDocumentOptions { MaxDepth = 1000 };

        public static byte[] Write(Action<Utf8JsonWriter> members)
        {
            var text = new ArrayBufferWriter<byte>();
            using (var writer = new Utf8JsonWriter(text, Relaxed))
            {
                writer.WriteStartObject();
                members(writer);
                writer.WriteEndObject();
            }
            return text.WrittenSpan.ToArray();
        }

        public static void WriteText(Utf8JsonWriter writer, string name, string? text)
        {
            if (text != null)
            {
                writer.WriteString(name, text);
            }
        }

        public static void WriteSeconds(Utf8JsonWriter writer, string name, TimeSpan? time)
        {
            if (time != null)
            {
                writer.WriteNumber(name, time.Value.TotalSeconds);
            }
        }

        /// <summary>The answer as <typeparamref name="T"/>. Throws UnreachableException if another program answered.</summary>
        public static T Read<T>(byte[] answer) => Translated(() => JsonSerializer.Deserialize<T>(answer));

        /// <summary>What <paramref name="read"/> finds in the answer. Throws UnreachableException as above.</summary>
        public static T Read<T>(byte[] answer, Func<JsonElement, T> read) =>
            Translated(() => read(JsonDocument.Parse(answer, Deep).RootElement));

        private static T Translated<T>(Func<T> read)
        {
            try
            {
                return read();
            }
            catch (Exception error) when (
                error is JsonException || error is KeyNotFoundException || error is InvalidOperationException)
            {
                throw new UnreachableException("The answer is not that of a gateway.", true, error);
            }
        }
    }
}
