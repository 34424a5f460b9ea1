using System;
using System.Diagnostics;
using System.Linq;

namespace Babelgate.Client
{
    /// <summary>When the same request may be sent again.</summary>
    internal enum Repeat
    {
        /// <summary>It has the same effect twice as once.</summary>
        Always,

        /// <summary>Only if the gateway said, or it is certain, that nothing was written.</summary>
        UnlessWritten,
    }

    /// <summary>Time that no change of the computer's clock affects.</summary>
    internal static class Clock
    {
        private static readonly Stopwatch Started = Stopwatch.StartNew();

        public static TimeSpan Now => Started.Elapsed;
    }

    /// <summary>
    /// The pauses between the attempts of one call: from 0.1 s, doubling to 10 s, with jitter; or as the gateway says.
    /// They end <c>retryFor</c> after the first attempt.
    /// </summary>
    internal sealed class Attempts
    {
        public static readonly TimeSpan Forever = TimeSpan.MaxValue;
        private static readonly TimeSpan First = TimeSpan.FromSeconds(0.1);
        private static readonly TimeSpan Longest = TimeSpan.FromSeconds(10);

        /// <summary>How proxies answer while the gateway is away or overloaded.</summary>
        private static readonly int[] OfAway = { 408, 429, 502, 503, 504 };

        private readonly Random _random = new Random();
        private readonly Repeat _repeat;
        private readonly TimeSpan _started = Clock.Now;
        private readonly TimeSpan _retryFor;
        private TimeSpan _pause = First;

        public Attempts(Repeat repeat, TimeSpan retryFor)
        {
            _repeat = repeat;
            _retryFor = retryFor;
        }

        /// <summary>Whether there is another attempt after <paramref name="error"/>, and the pause until then.</summary>
        public bool TryPause(BabelgateException error, out TimeSpan pause)
        {
            pause = _pause * (0.5 + _random.NextDouble() / 2);
            _pause = Shorter(_pause * 2, Longest);
            if (error is ProblemException problem && problem.RetryAfter > pause)
            {
                pause = problem.RetryAfter.Value;
            }
            return Repeats(error, _repeat) && Clock.Now - _started <= _retryFor - pause;
        }

        public static bool Repeats(BabelgateException error, Repeat repeat)
        {
            if (error is ProblemException problem)
            {
                return repeat == Repeat.UnlessWritten
                    ? problem.Retryable && (problem.Status == 429 || problem.Status == 503)
                    : problem.Retryable || problem.IsOfProxy && OfAway.Contains(problem.Status);
            }
            return repeat == Repeat.Always || error is UnreachableException unreachable && !unreachable.OutcomeUnknown;
        }

        private static TimeSpan Shorter(TimeSpan one, TimeSpan other) => one < other ? one : other;
    }
}
