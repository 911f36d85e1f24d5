//! Bodies of requests.

use futures::stream;

use super::*;

const LIMITS: BodyLimits = BodyLimits { largest: 100, small: 10, large_at_once: 1 };

fn body(parts: &[usize]) -> Body {
    let parts: Vec<_> = parts.iter().map(|&size| Ok::<_, io::Error>(vec![b'x'; size])).collect();
    Body::from_stream(stream::iter(parts))
}

#[tokio::test]
async fn a_body_is_read_up_to_its_limit() {
    let reader = BodyReader::new(LIMITS);
    for parts in [&[0][..], &[10], &[100], &[1; 100], &[50, 50]] {
        let (bytes, _) = reader.read(body(parts)).await.unwrap();
        assert_eq!(bytes.len(), parts.iter().sum::<usize>());
    }
    for too_large in [body(&[101]), body(&[50, 51]), Body::from(vec![0; 101])] {
        assert_eq!(reader.read(too_large).await.unwrap_err(), BodyError::TooLarge);
    }
    let broken = Body::from_stream(stream::iter([Ok(vec![0]), Err(io::Error::other("gone"))]));
    assert_eq!(reader.read(broken).await.unwrap_err(), BodyError::Incomplete);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_large_bodies_in_memory_is_limited_and_that_of_small_ones_is_not() {
    let reader = BodyReader::new(LIMITS);
    let (_, permit) = reader.read(body(&[11])).await.unwrap();
    let second = reader.read(body(&[11]));
    assert!(timeout(Duration::from_secs(1), second).await.is_err());
    reader.read(body(&[10])).await.unwrap();
    drop(permit);
    reader.read(body(&[11])).await.unwrap();
}
