using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text.Json;
using Babelgate.Client.Generated;

namespace Babelgate.Client
{
    /// <summary>A batch on its way: the bytes of each entry, and its last result.</summary>
    internal sealed class Batch
    {
        // A gateway takes 10,000 entries and 16 MiB by default. Smaller requests are repeated in smaller parts.
        private const int EntriesPerRequest = 1_000;
        private const int BytesPerRequest = 4_194_304;

        private readonly IReadOnlyList<Message> _messages;
        private readonly JsonSerializerOptions _options;
        private readonly string?[] _keys;
        private readonly byte[][] _drafts;
        private readonly EntryResult[] _results;
        private List<int> _pending;

        public Batch(IReadOnlyList<Message> messages, bool keyed, JsonSerializerOptions options)
        {
            _messages = messages;
            _options = options;
            _keys = messages.Select(each => each.IdempotencyKey ?? (keyed ? Calls.NewKey() : null)).ToArray();
            _drafts = messages.Select((each, index) => each.Draft(_keys[index], options)).ToArray();
            _results = new EntryResult[messages.Count];
            _pending = Enumerable.Range(0, messages.Count).ToList();
        }

        /// <summary>Whether the queue refused a key that the client made.</summary>
        public bool KeysUnsupported { get; private set; }

        /// <summary>One result per message, in order.</summary>
        public IReadOnlyList<EntryResult> Results => _results;

        /// <summary>The entries that are not done, in parts for one request each.</summary>
        public IReadOnlyList<IReadOnlyList<int>> Parts()
        {
            var parts = new List<IReadOnlyList<int>>();
            var part = new List<int>();
            var size = 0L;
            foreach (var index in _pending)
            {
                size += _drafts[index].Length + 1;
                if (part.Count > 0 && (part.Count == EntriesPerRequest || size > BytesPerRequest))
                {
                    parts.Add(part);
                    part = new List<int>();
                    size = _drafts[index].Length + 1;
                }
                part.Add(index);
            }
            if (part.Count > 0)
            {
                parts.Add(part);
            }
            return parts;
        }

        public Call CallOf(string queue, IReadOnlyList<int> part, string? traceparent)
        {
            using var body = new MemoryStream();
            var between = (byte)'[';
            foreach (var index in part)
            {
                body.WriteByte(between);
                body.Write(_drafts[index]);
                between = (byte)',';
            }
            body.WriteByte((byte)']');
            var keyed = part.All(index => _keys[index] != null);
            return new Call(Calls.Path(queue, "messages:batch"), body.ToArray())
            {
                Traceparent = Calls.Traced(traceparent),
                Repeat = keyed ? Repeat.Always : Repeat.UnlessWritten,
            };
        }

        public void Record(IReadOnlyList<int> part, BatchResult answer)
        {
            foreach (var result in answer.Results)
            {
                var index = part[(int)result.Index];
                result.Index = index;
                _results[index] = result;
            }
        }

        /// <summary>Prepares what is to be sent again; an error for which, or null when all is done.</summary>
        public BabelgateException? Failure()
        {
            _pending = new List<int>();
            BabelgateException? failure = null;
            for (var index = 0; index < _results.Length; index++)
            {
                var result = _results[index];
                if (result.Status < 300)
                {
                    continue;
                }
                var problem = new Problem { Code = result.Code!, Detail = result.Detail!, Retryable = result.Retryable ?? false };
                var repeat = _keys[index] == null ? Repeat.UnlessWritten : Repeat.Always;
                var own = _keys[index] != null && _messages[index].IdempotencyKey == null;
                if (own && result.Code == Calls.NeedsNoKey)
                {
                    KeysUnsupported = true;
                    _keys[index] = null;
                    _drafts[index] = _messages[index].Draft(null, _options);
                }
                else if (!Attempts.Repeats(new ProblemException((int)result.Status, problem), repeat))
                {
                    continue;
                }
                _pending.Add(index);
                problem.Retryable = true;
                failure = new ProblemException(503, problem);
            }
            return failure;
        }
    }
}
