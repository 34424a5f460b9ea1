using System;
using System.Collections.Generic;
using Babelgate.Client.Generated;

namespace Babelgate.Client
{
    /// <summary>Base of the errors of a client: <see cref="ProblemException"/> and <see cref="UnreachableException"/>.</summary>
    public abstract class BabelgateException : Exception
    {
        private protected BabelgateException(string message, Exception? cause = null) : base(message, cause)
        {
        }
    }

    /// <summary>The gateway answered with a problem (RFC 9457).</summary>
    public class ProblemException : BabelgateException
    {
        internal ProblemException(int status, Problem? problem, TimeSpan? retryAfter = null)
            : base($"{CodeOf(status, problem)}: {DetailOf(problem)}")
        {
            Status = status;
            Code = CodeOf(status, problem);
            Title = problem?.Title ?? "";
            Detail = DetailOf(problem);
            Retryable = problem?.Retryable ?? false;
            TraceId = problem?.TraceId;
            Errors = problem?.Errors ?? Array.Empty<Defect>();
            RetryAfter = retryAfter;
        }

        /// <summary>The HTTP status.</summary>
        public int Status { get; }

        /// <summary>Stable: use it, and not the text, to tell problems apart.</summary>
        public string Code { get; }

        /// <summary>The kind of problem in a few words.</summary>
        public string Title { get; }

        /// <summary>What went wrong this time, in sentences for people.</summary>
        public string Detail { get; }

        /// <summary>Whether the same request may succeed later.</summary>
        public bool Retryable { get; }

        /// <summary>The <c>trace_id</c> of the message, when it is known.</summary>
        public string? TraceId { get; }

        /// <summary>Each defect of the request.</summary>
        public IReadOnlyList<Defect> Errors { get; }

        /// <summary>How long the gateway asks to wait before the request is repeated.</summary>
        public TimeSpan? RetryAfter { get; }

        /// <summary>Whether something between the gateway and this client said this.</summary>
        internal bool IsOfProxy => Code == $"http_{Status}";

        private static string CodeOf(int status, Problem? problem) => problem?.Code ?? $"http_{status}";

        private static string DetailOf(Problem? problem) => problem?.Detail ?? "the answer has no details";
    }

    /// <summary>The lease is over: the message was settled, or is delivered again.</summary>
    public sealed class LeaseLostException : ProblemException
    {
        internal const string LeaseLost = "lease_lost";

        internal LeaseLostException(int status, Problem problem) : base(status, problem)
        {
        }
    }

    /// <summary>No gateway answered.</summary>
    public sealed class UnreachableException : BabelgateException
    {
        internal UnreachableException(string reason, bool outcomeUnknown, Exception? cause = null)
            : base(outcomeUnknown ? reason + " The request may have been carried out." : reason, cause)
        {
            OutcomeUnknown = outcomeUnknown;
        }

        /// <summary>Whether the request may have been carried out all the same.</summary>
        public bool OutcomeUnknown { get; }
    }

    /// <summary>Thrown by a handler: dead-letter the message now.</summary>
    public sealed class RejectException : Exception
    {
        /// <summary>Dead-letter the message, with <paramref name="message"/> as its error.</summary>
        public RejectException(string message, Exception? cause = null) : base(message, cause)
        {
        }
    }

    /// <summary>Thrown by a handler: deliver the message again later. It counts as a failed attempt.</summary>
    public sealed class RetryException : Exception
    {
        /// <summary>Deliver the message again after <paramref name="delay"/>.</summary>
        public RetryException(
            TimeSpan delay, string message = "the handler requested another delivery", Exception? cause = null)
            : base(message, cause)
        {
            Delay = delay;
        }

        /// <summary>How long the message is not delivered.</summary>
        public TimeSpan Delay { get; }
    }
}
